#include <algorithm>
#include <functional>

#include "array/near.h"
#include "array/windows_reference.h"
#include "lockstep/convolution.h"
#include "lockstep/grad.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

using reference::Geometry;
using reference::Ints;
using reference::position;
using reference::Random;

// A convolution in the order [n, spatial..., c], [window..., i, o] of its dimensions.
struct ConvCase {
  Geometry geometry;
  int64_t batch = 1, groups = 1, batch_groups = 1, in = 1, out = 1;  // channels of a group

  Shape lhs() const { return shape(batch * batch_groups, geometry.in, groups * in); }
  Shape rhs() const {
    Shape s = geometry.window;
    s.push_back(in);
    s.push_back(groups * batch_groups * out);
    return s;
  }
  Shape result() const { return shape(batch, geometry.out(), groups * batch_groups * out); }
  static Shape shape(int64_t first, const Ints& spatial, int64_t last) {
    Shape s{first};
    s.insert(s.end(), spatial.begin(), spatial.end());
    s.push_back(last);
    return s;
  }

  // Calls f(position in lhs, in rhs, in the result) for every product.
  void for_products(const std::function<void(size_t, size_t, size_t)>& f) const {
    const Shape x = lhs(), w = rhs(), y = result();
    reference::for_each_element(geometry, [&](const Ints& o, const Ints& k, const Ints& at) {
      if (at.empty() && !o.empty()) return;
      for (int64_t n = 0; n < batch; ++n)
        for (int64_t c = 0; c < y.back(); ++c)
          for (int64_t i = 0; i < in; ++i) {
            Ints tap = k;
            tap.push_back(i);
            tap.push_back(c);
            const int64_t group = c / out;  // of the channels, or of the batch
            f(static_cast<size_t>(position(
                  x, shape(batch_groups > 1 ? group * batch + n : n, at, (batch_groups > 1 ? 0 : group * in) + i))),
              static_cast<size_t>(position(w, tap)), static_cast<size_t>(position(y, shape(n, o, c))));
          }
    });
  }
};

std::vector<ConvCase> random_cases(size_t n, uint32_t seed) {
  Random random(seed);
  std::vector<ConvCase> cases;
  while (cases.size() < n) {
    const size_t dims = cases.size() % 4 == 3 ? 3 : cases.size() % 3;
    ConvCase c{random.geometry(dims, dims == 3 ? 5 : 9), random.pick(0, 2), 1, 1, random.pick(1, 3), random.pick(1, 3)};
    (random.pick(0, 2) == 0 ? c.batch_groups : c.groups) = random.pick(1, 3);
    cases.push_back(c);
  }
  return cases;
}

const ConvDimensionNumbers kLast[] = {
    {"NC", "IO", "NC"}, {"NWC", "WIO", "NWC"}, {"NHWC", "HWIO", "NHWC"}, {"NDHWC", "DHWIO", "NDHWC"}};

// A permutation of the dimensions, as letters.
ConvDimensionNumbers shuffled(size_t dims, Random& random) {
  const std::string spatial = kLast[dims].rhs.substr(0, dims);
  ConvDimensionNumbers d{"NC" + spatial, "OI" + spatial, "CN" + spatial};
  for (std::string* s : {&d.lhs, &d.out})
    for (size_t i = s->size() - 1; i > 0; --i)
      std::swap((*s)[i], (*s)[static_cast<size_t>(random.pick(0, static_cast<int64_t>(i)))]);
  // The spatial dimensions of the filters stay in their order, which is that of the strides.
  for (const char channel : {'O', 'I'}) {
    std::erase(d.rhs, channel);
    d.rhs.insert(static_cast<size_t>(random.pick(0, static_cast<int64_t>(d.rhs.size()))), 1, channel);
  }
  return d;
}

// Moves the dimensions of an array in the order `from` to the order `to`.
Array reordered(const Array& x, const std::string& from, const std::string& to) {
  Ints order;
  for (char letter : to) order.push_back(static_cast<int64_t>(from.find(letter)));
  return transpose(x, order);
}

ConvGeneralOptions options_of(const ConvCase& c, const ConvDimensionNumbers& numbers) {
  return {.window_strides = c.geometry.stride,
          .padding = c.geometry.pad,
          .lhs_dilation = c.geometry.base,
          .rhs_dilation = c.geometry.dilation,
          .feature_group_count = c.groups,
          .batch_group_count = c.batch_groups,
          .dimension_numbers = numbers};
}

TEST(ConvGeneral, MatchesItsDefinitionInEveryOrderOfDimensions) {
  Random random(5);
  for (const ConvCase& c : random_cases(160, 1)) {
    SCOPED_TRACE(c.geometry.text());
    const size_t dims = c.geometry.in.size();
    const Array x = random.integers(c.lhs()), w = random.integers(c.rhs());
    const std::vector<double> xs = x.to_vector<double>(), ws = w.to_vector<double>();
    std::vector<double> wanted(static_cast<size_t>(count(c.result())), 0);
    c.for_products([&](size_t i, size_t k, size_t o) { wanted[o] += xs[i] * ws[k]; });
    const ConvDimensionNumbers numbers = shuffled(dims, random);
    const Array y = conv_general_dilated(reordered(x, kLast[dims].lhs, numbers.lhs),
                                         reordered(w, kLast[dims].rhs, numbers.rhs), options_of(c, numbers));
    const Array last = reordered(y, numbers.out, kLast[dims].lhs);
    ASSERT_EQ(last.shape(), c.result());
    EXPECT_EQ(last.to_vector<double>(), wanted);
  }
}

TEST(ConvGeneral, GradientsMatchTheTransposedLoops) {
  Random random(6);
  for (const ConvCase& c : random_cases(60, 2)) {
    SCOPED_TRACE(c.geometry.text());
    const ConvGeneralOptions options = options_of(c, kLast[c.geometry.in.size()]);
    const Array x = random.integers(c.lhs()), w = random.integers(c.rhs()), ct = random.integers(c.result());
    const auto [dx, dw] =
        grad<0, 1>([&](const Array& a, const Array& b) { return sum(conv_general_dilated(a, b, options) * ct); })(x, w);
    const std::vector<double> xs = x.to_vector<double>(), ws = w.to_vector<double>(), cts = ct.to_vector<double>();
    std::vector<double> wanted_x(xs.size(), 0), wanted_w(ws.size(), 0);
    c.for_products([&](size_t i, size_t k, size_t o) {
      wanted_x[i] += cts[o] * ws[k];
      wanted_w[k] += cts[o] * xs[i];
    });
    EXPECT_EQ(dx.to_vector<double>(), wanted_x);
    EXPECT_EQ(dw.to_vector<double>(), wanted_w);
  }
}

// The loss is quadratic in x and w: the gradient of its gradient along a direction is exact, too.
TEST(ConvGeneral, SecondGradientsMatchDifferences) {
  Random random(7);
  for (const ConvCase& c : random_cases(16, 3)) {
    if (c.batch == 0) continue;
    SCOPED_TRACE(c.geometry.text());
    const ConvGeneralOptions options = options_of(c, kLast[c.geometry.in.size()]);
    const Array x = random.integers(c.lhs()), w = random.integers(c.rhs()), step = random.integers(c.lhs());
    const auto slope = grad([&](const Array& a, const Array& b) {
      const Array y = conv_general_dilated(a, b, options);
      return sum(y * y);
    });
    const Array along = grad([&](const Array& a) { return sum(slope(a, w) * step); })(x);
    const Array wanted = slope(x + step, w) - slope(x, w);
    EXPECT_EQ(along.to_vector<double>(), wanted.to_vector<double>());
  }
}

TEST(ConvGeneral, BatchesEachOperand) {
  Random random(8);
  for (const ConvCase& c : random_cases(24, 4)) {
    SCOPED_TRACE(c.geometry.text());
    const ConvGeneralOptions options = options_of(c, kLast[c.geometry.in.size()]);
    const auto f = [&](const Array& a, const Array& b) { return conv_general_dilated(a, b, options); };
    const Array x = stack({random.integers(c.lhs()), random.integers(c.lhs())}),
                w = stack({random.integers(c.rhs()), random.integers(c.rhs())});
    const auto expect_rows = [&](const Array& got, const Array& first, const Array& second) {
      EXPECT_EQ(at(got, 0).to_vector<double>(), first.to_vector<double>());
      EXPECT_EQ(at(got, 1).to_vector<double>(), second.to_vector<double>());
    };
    const Array x0 = at(x, 0), x1 = at(x, 1), w0 = at(w, 0), w1 = at(w, 1);
    expect_rows(vmap(f)(x, w), f(x0, w0), f(x1, w1));
    expect_rows(vmap(f, {.in_axes = {0, std::nullopt}})(x, w0), f(x0, w0), f(x1, w0));
    expect_rows(vmap(f, {.in_axes = {std::nullopt, 0}})(x0, w), f(x0, w0), f(x0, w1));
  }
}

TEST(ConvGeneral, ShortFormsAreSpecialCases) {
  Random random(9);
  const Array x = random.integers({2, 3, 7, 8}), w = random.integers({4, 3, 3, 2});
  const Array last = transpose(x, {0, 2, 3, 1}), filter = transpose(w, {2, 3, 1, 0});
  const auto expect_same = [](const Array& a, const Array& b) {
    ASSERT_EQ(a.shape(), b.shape());
    EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>());
  };
  const Array wanted = transpose(conv2d(last, filter, {.stride = {2, 1}}), {0, 3, 1, 2});
  expect_same(conv(x, w, {2, 1}, "SAME"), wanted);
  expect_same(conv_with_general_padding(x, w, {2, 1}, {{1, 1}, {0, 1}}), wanted);
  expect_same(conv_general_dilated(x, w, {.window_strides = {2, 1}, .padding = "SAME"}), wanted);
  // An odd element of padding goes to the beginning.
  expect_same(conv(x, w, 1, "SAME_LOWER"), conv_with_general_padding(x, w, 1, {{1, 1}, {1, 0}}));
  expect_same(conv1d(at(last, 0), at(filter, 0), {.padding = "VALID"}),
              at(conv2d(reshape(at(last, 0), {7, 1, 8, 3}), slice(filter, {0}, {1}), {.padding = "VALID"}), 0, 1));
  const Array volume = random.integers({1, 4, 5, 4, 2}), cube = random.integers({1, 3, 2, 2, 3});
  expect_same(at(conv3d(volume, cube), 2, 1), conv2d(at(volume, 2, 1), at(cube, 0)));
  const Array each = random.integers({3, 2, 1, 6});
  expect_same(depthwise_conv(last, each), conv2d(last, each, {.groups = 3}));
  expect_same(depthwise_conv(at(last, 0), random.integers({1, 1, 3}) * 0 + 1), at(last, 0));
}

// conv_transpose with transpose_kernel is the gradient of the convolution.
TEST(ConvTranspose, IsTheGradientOfAConvolution) {
  Random random(10);
  for (const bool same : {true, false})
    for (int64_t s = 1; s <= 3; ++s)
      for (int64_t k = 1; k <= 4; ++k) {
        const Array y = random.integers({2, 5, 4}), w = random.integers({k, 3, 4});
        const char* padding = same ? "SAME" : "VALID";
        const Array x = conv_transpose(y, w, s, padding, {.transpose_kernel = true});
        EXPECT_EQ(x.shape(), (Shape{2, same ? 5 * s : 5 * s + std::max<int64_t>(k - s, 0), 3}));
        if (k < s) continue;  // the padding is not that of the convolution
        const Array dx = grad([&](const Array& a) { return sum(conv1d(a, w, {.stride = s, .padding = padding}) * y); })(
            zeros(x.shape(), f64));
        EXPECT_EQ(x.to_vector<double>(), dx.to_vector<double>()) << "stride " << s << " window " << k;
      }
}

TEST(ConvTranspose, KeepsTheKernelByDefault) {
  const Array x = reshape(arange(3, f32), {1, 3, 1}), w = reshape(array({1.0f, 10.0f, 100.0f}), {3, 1, 1});
  EXPECT_ELEMENTS(conv_transpose(x, w, 2, "VALID"), {0, 0, 100, 10, 201, 20, 2}, 0);
  EXPECT_ELEMENTS(conv_transpose(x, w, 2, {{1, 2}}), {0, 100, 10, 201, 20, 2}, 0);
  EXPECT_EQ(conv_transpose(zeros({1, 3, 4, 2}), zeros({3, 3, 2, 5}), {2, 3}, "SAME").shape(), (Shape{1, 6, 12, 5}));
  EXPECT_EQ(conv_transpose(zeros({1, 3, 4, 5, 2}), zeros({3, 3, 3, 2, 5}), 2, "SAME").shape(), (Shape{1, 6, 8, 10, 5}));
}

TEST(ConvPatches, AreWhatAConvolutionReads) {
  Random random(11);
  for (const ConvCase& c : random_cases(24, 12)) {
    if (c.geometry.in.empty()) continue;
    SCOPED_TRACE(c.geometry.text());
    const size_t dims = c.geometry.in.size();
    const Array x = random.integers(ConvCase::shape(c.batch, c.geometry.in, c.in));
    ConvCase plain = c;
    plain.groups = plain.batch_groups = 1;
    const Array w = random.integers(plain.rhs());
    const ConvGeneralOptions options = options_of(plain, kLast[dims]);
    const Array patches = conv_general_dilated_patches(x, c.geometry.window, options);
    // The channels of patches are [c, window...].
    const Array filter = reshape(moveaxis(w, static_cast<int64_t>(dims), 0), {-1, c.out});
    const Array y = conv_general_dilated(x, w, options);
    EXPECT_EQ(matmul(patches, filter).to_vector<double>(), y.to_vector<double>());
  }
}

TEST(ConvLocal, HasFiltersForEachPlace) {
  Random random(12);
  const Array x = random.integers({2, 5, 6, 3}), w = random.integers({2, 2, 3, 4});
  const ConvGeneralOptions options{.window_strides = {1, 2}, .dimension_numbers = {"NHWC", "HWIO", "NHWC"}};
  const Array y = conv_general_dilated(x, w, options), filter = reshape(transpose(w, {2, 0, 1, 3}), {1, 1, 12, 4});
  const Array same = broadcast_to(filter, {y.shape(1), y.shape(2), 12, 4});
  EXPECT_EQ(conv_general_dilated_local(x, same, {2, 2}, options).to_vector<double>(), y.to_vector<double>());
  const Array scaled = same * reshape(arange(y.shape(1), f64), {-1, 1, 1, 1});
  EXPECT_EQ(at(conv_general_dilated_local(x, scaled, {2, 2}, options), 3, 1).to_vector<double>(),
            (at(y, 3, 1) * 3.0).to_vector<double>());
  EXPECT_THROWS(conv_general_dilated_local(x, w, {2, 2}, options), Error,
                "the filters are [2, 2, 3, 4]; in the order [out..., I, O] they must be [4, 3, 12] and the output");
}

TEST(ConvGeneral, RejectsMismatchedOperands) {
  const Array x = zeros({2, 4, 5, 5}), w = zeros({6, 4, 3, 3});
  EXPECT_THROWS(
      conv_general_dilated(x, zeros({6, 3, 3, 3})), Error,
      "conv_general_dilated: input [2, 5, 5, 4] does not fit filters [3, 3, 3, 6] with 1 group: the input has 4 "
      "channels, the filters take 3 per group and produce 6;");
  EXPECT_THROWS(conv_general_dilated(x, zeros({5, 2, 3, 3}), {.feature_group_count = 2}), Error,
                "with 2 groups: the input has 4 channels, the filters take 2 per group and produce 5;");
  EXPECT_THROWS(conv_general_dilated(x, w, {.batch_group_count = 4}), Error,
                "a batch of 2 and 6 output channels do not divide into 4 groups");
  EXPECT_THROWS(conv_general_dilated(x, w, {.feature_group_count = 2, .batch_group_count = 2}), Error,
                "both are at least 1 and one of them is 1");
  EXPECT_THROWS(conv_general_dilated(x, zeros({6, 4, 7, 3})), Error,
                "the window [7, 3] spans 7 along dimension 0 of [5, 5], which has 5 with padding; pad more");
  EXPECT_THROWS(conv_general_dilated(x, zeros({6, 4, 3})), Error,
                "the input is [2, 4, 5, 5] and the filters are [6, 4, 3]");
  for (const ConvDimensionNumbers& wrong : {ConvDimensionNumbers{"NHWC", "HWIO", "NHW"},
                                            {"NHWC", "HWIO", "NHXC"},
                                            {"NHHC", "HHIO", "NHHC"},
                                            {"NHWC", "HWIC", "NHWC"}})
    EXPECT_THROWS(
        conv_general_dilated(x, w, {.dimension_numbers = wrong}), Error,
        "each needs 4 letters: N and C, in the filters O and I, and the same letters for the spatial dimensions");
  EXPECT_THROWS(conv_general_dilated(x, w, {.window_strides = {1, 2, 3}}), Error,
                "the stride is [1, 2, 3], for 2 dimensions; give a number for each, or one for all");
  EXPECT_THROWS(conv_general_dilated(x, w, {.window_strides = 0}), Error, "each number must be at least 1");
  EXPECT_THROWS(conv_general_dilated(x, w, {.padding = {{1, 1}}}), Error,
                "padding has 1 pairs of widths for 2 dimensions");
  EXPECT_THROWS(conv_general_dilated(x, w, {.padding = "SAME", .lhs_dilation = 2}), Error, "or use conv_transpose");
  EXPECT_THROWS(conv1d(x, w), Error,
                "conv1d: the input is [2, 4, 5, 5] and the filters are [6, 4, 3, 3]; both must have 3");
  EXPECT_THROWS(depthwise_conv(x, w), Error, "depthwise_conv: input [2, 4, 5, 5] does not fit filters [6, 4, 3, 3]");
  EXPECT_THROWS(conv_transpose(x, w, 1, "SAME_LOWER"), Error, "padding is \"SAME_LOWER\"");
  EXPECT_THROWS(conv_transpose(x, zeros({3}), 1, "SAME"), Error, "both must have the same number of dimensions");
  EXPECT_THROWS(conv_general_dilated_patches(x, {2}), Error, "the input is [2, 4, 5, 5] and the filter shape [2]");
  EXPECT_THROWS(conv_general_dilated_patches(x, {2, 2}, {.batch_group_count = 2}), Error, "both must be 1");
}

}  // namespace
}  // namespace lockstep
