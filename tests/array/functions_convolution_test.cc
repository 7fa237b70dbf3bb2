#include "array/near.h"
#include "lockstep/convolution.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

Array image() { return reshape(arange(16, f32), {1, 4, 4, 1}); }

TEST(Conv2d, AppliesPadding) {
  const Array w = ones({3, 3, 1, 1});
  EXPECT_ELEMENTS(conv2d(image(), w, {.padding = "VALID"}), {45, 54, 81, 90}, 1e-4);
  const Array same = conv2d(image(), w);
  EXPECT_EQ(same.shape(), (Shape{1, 4, 4, 1}));
  EXPECT_ELEMENTS(slice(ravel(same), {0}, {4}), {10, 18, 24, 18}, 1e-4);
  EXPECT_EQ(conv2d(image(), w, {.padding = {{1, 0}, {2, 2}}}).shape(), (Shape{1, 3, 6, 1}));
  // Width 4, stride 2, 3 taps: one column of padding, at the end.
  EXPECT_ELEMENTS(conv2d(image(), w, {.stride = 2}), {45, 39, 66, 50}, 1e-4);
  EXPECT_EQ(conv2d(image(), w, {.stride = {1, 3}, .padding = "VALID"}).shape(), (Shape{1, 2, 1, 1}));
  EXPECT_EQ(conv2d(image(), w, {.dilation = 2}).shape(), (Shape{1, 4, 4, 1}));
}

TEST(Padding, IsANumberForAllSidesOrAPairForEachDimension) {
  const Array x = random::normal(random::key(1), {2, 5, 6, 3}), w = random::normal(random::key(2), {3, 3, 3, 2});
  const auto same = [](const Array& a, const Array& b) {
    EXPECT_EQ(a.shape(), b.shape());
    EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
  };
  same(conv2d(x, w, {.padding = 1}), conv2d(x, w, {.padding = {{1, 1}, {1, 1}}}));
  same(conv2d(x, w, {.padding = {1, 2}}), conv2d(x, w, {.padding = {{1, 1}, {2, 2}}}));
  same(conv2d(x, w, {.padding = {1, {0, 2}}}), conv2d(x, w, {.padding = {{1, 1}, {0, 2}}}));
  same(conv2d(x, w, {.padding = 0}), conv2d(x, w, {.padding = "VALID"}));
  same(conv2d(x, w, {.padding = {0, 0}}), conv2d(x, w, {.padding = "VALID"}));
  same(conv2d(x, w, {.padding = {{0, 0}, {0, 0}}}), conv2d(x, w, {.padding = "VALID"}));
  same(conv2d(x, w, {.padding = 1}), conv2d(x, w, {.padding = "SAME"}));
  const Array line = random::normal(random::key(3), {2, 7, 3}), taps = random::normal(random::key(4), {3, 3, 2});
  same(conv1d(line, taps, {.padding = 1}), conv1d(line, taps, {.padding = {{1, 1}}}));
  same(conv1d(line, taps, {.padding = 0}), conv1d(line, taps, {.padding = "VALID"}));
  same(conv_transpose(line, taps, 2, 1, {}), conv_transpose(line, taps, 2, {{1, 1}}, {}));
  same(max_pool(x, {.window = 3, .padding = 1}), max_pool(x, {.window = 3, .padding = {{1, 1}, {1, 1}}}));
  same(avg_pool(x, {.window = 3, .padding = {1, 0}}), avg_pool(x, {.window = 3, .padding = {{1, 1}, {0, 0}}}));
  same(avg_pool(x, {.window = 3, .padding = 0}), avg_pool(x, {.window = 3}));
}

TEST(Padding, ForAnotherNumberOfDimensionsIsRejected) {
  EXPECT_THROWS(conv1d(zeros({1, 4, 1}), zeros({1, 1, 1}), {.padding = {1, 2}}), Error,
                "padding has 2 pairs of widths for 1 dimensions; give {before, after} for each, or one number");
}

TEST(Conv2d, DividesChannelsIntoGroups) {
  const Array x = reshape(arange(4, f32), {1, 1, 2, 2}), w = array({{{1.0f, 10.0f}}});
  EXPECT_ELEMENTS(conv2d(x, reshape(w, {1, 1, 1, 2}), {.groups = 2}), {0, 10, 2, 30}, 1e-5);
}

TEST(Conv2d, RejectsMismatchedShapes) {
  const Array w = ones({3, 3, 1, 1});
  EXPECT_THROWS(conv2d(zeros({28, 28}), w), Error, "conv2d: the images are [28, 28]; they must be [n, h, w, c]");
  EXPECT_THROWS(conv2d(image(), zeros({3, 3})), Error,
                "conv2d: the filters are [3, 3]; they must be [kh, kw, c / groups, co]");
  EXPECT_THROWS(conv2d(zeros({1, 4, 4, 3}), w), Error, "the images have 3 channels, the filters take 1 per group");
  EXPECT_THROWS(conv2d(image(), w, {.stride = 0}), Error, "conv2d: the stride is 0 x 0; it must be at least 1");
  EXPECT_THROWS(conv2d(image(), w, {.padding = "same"}), Error, "padding: \"same\" is neither \"SAME\" nor \"VALID\"");
}

TEST(Pools, TakeMaximaAndMeans) {
  EXPECT_ELEMENTS(max_pool(image()), {5, 7, 13, 15}, 0);
  EXPECT_ELEMENTS(avg_pool(image()), {2.5, 4.5, 10.5, 12.5}, 1e-6);
  EXPECT_EQ(max_pool(image(), {.window = 3, .stride = 1}).shape(), (Shape{1, 2, 2, 1}));
  EXPECT_ELEMENTS(max_pool(image(), {.window = 3, .padding = "SAME"}), {5, 7, 13, 15}, 0);
  const Array ones3 = ones({1, 3, 3, 1});
  EXPECT_ELEMENTS(avg_pool(ones3, {.padding = "SAME"}), {1, 0.5, 0.5, 0.25}, 1e-6);
  EXPECT_ELEMENTS(avg_pool(ones3, {.padding = "SAME", .count_padding = false}), {1, 1, 1, 1}, 1e-6);
  EXPECT_THROWS(max_pool(zeros({4, 4})), Error,
                "max_pool: the images are [4, 4]; they must be [n, w, c], [n, h, w, c] or");
  EXPECT_THROWS(avg_pool(image(), {.window = {0, 2}}), Error,
                "avg_pool: the window is [0, 2]; each number must be at least 1");
}

TEST(Pools, HaveGradients) {
  const Array g = grad([](const Array& x) { return sum(max_pool(x)); })(image());
  EXPECT_ELEMENTS(g, {0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1}, 0);
  const Array h = grad([](const Array& x) { return sum(avg_pool(x)); })(image());
  EXPECT_ELEMENTS(h, std::vector<double>(16, 0.25), 1e-6);
}

}  // namespace
}  // namespace lockstep
