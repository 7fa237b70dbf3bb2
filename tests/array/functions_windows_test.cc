#include <cmath>
#include <limits>
#include <map>

#include "array/near.h"
#include "array/windows_reference.h"
#include "lockstep/convolution.h"
#include "lockstep/grad.h"
#include "lockstep/image.h"
#include "lockstep/indexing.h"
#include "lockstep/jit.h"
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

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr WindowOp kOps[] = {WindowOp::add, WindowOp::mul, WindowOp::max, WindowOp::min};

double identity_of(WindowOp op) {
  return op == WindowOp::add ? 0 : op == WindowOp::mul ? 1 : op == WindowOp::max ? -kInfinity : kInfinity;
}
double combine(WindowOp op, double a, double b) {
  return op == WindowOp::add   ? a + b
         : op == WindowOp::mul ? a * b
         : op == WindowOp::max ? std::max(a, b)
                               : std::min(a, b);
}

ReduceWindowOptions options_of(const Geometry& g) {
  return {.window_dimensions = g.window,
          .window_strides = g.stride,
          .padding = g.pad,
          .base_dilation = g.base,
          .window_dilation = g.dilation};
}

std::vector<double> reduced(const Geometry& g, const std::vector<double>& x, WindowOp op, double init) {
  const Ints out = g.out();
  std::vector<double> y(static_cast<size_t>(count(out)), init);
  reference::for_each_element(g, [&](const Ints& o, const Ints&, const Ints& at) {
    double& to = y[static_cast<size_t>(position(out, o))];
    to = combine(op, to, at.empty() && !o.empty() ? init : x[static_cast<size_t>(position(g.in, at))]);
  });
  return y;
}

// The gradient with respect to x, which has no equal element as the only place of a product's zero.
std::vector<double> gradient(const Geometry& g, const std::vector<double>& x, const std::vector<double>& ct,
                             WindowOp op) {
  const Ints out = g.out();
  std::vector<double> dx(x.size(), 0);
  std::map<Ints, Ints> windows;  // the elements of each window
  reference::for_each_element(g, [&](const Ints& o, const Ints&, const Ints& at) {
    if (!at.empty()) windows[o].push_back(position(g.in, at));
  });
  const auto value = [&](int64_t i) { return x[static_cast<size_t>(i)]; };
  for (const auto& [o, places] : windows) {
    const double sent = ct[static_cast<size_t>(position(out, o))];
    int64_t best = places[0];
    for (const int64_t i : places) {
      if (op == WindowOp::max ? value(i) > value(best) : value(i) < value(best)) best = i;
      double factor = 1;
      if (op == WindowOp::mul) {
        bool skipped = false;  // one of the places of i
        for (const int64_t j : places) {
          if (j == i && !skipped)
            skipped = true;
          else
            factor *= value(j);
        }
      }
      if (op == WindowOp::add || op == WindowOp::mul) dx[static_cast<size_t>(i)] += sent * factor;
    }
    if (op == WindowOp::max || op == WindowOp::min) dx[static_cast<size_t>(best)] += sent;
  }
  return dx;
}

TEST(ReduceWindow, MatchesItsDefinition) {
  Random random(1);
  for (int i = 0; i < 120; ++i) {
    const Geometry g = random.geometry(static_cast<size_t>(random.pick(1, 4)), i % 2 == 0 ? 4 : 7, i % 3 == 0 ? 3 : 1);
    const WindowOp op = kOps[i % 4];
    SCOPED_TRACE(g.text() + " op " + std::to_string(i % 4));
    const Array x = random.integers(g.in);
    const double init = i % 5 == 0 ? 2 : identity_of(op);
    const Array y = reduce_window(x, init, op, options_of(g));
    ASSERT_EQ(y.shape(), g.out());
    EXPECT_EQ(y.to_vector<double>(), reduced(g, x.to_vector<double>(), op, init));
  }
}

TEST(ReduceWindow, GradientsGoToTheElementsOfTheWindow) {
  Random random(2);
  for (int i = 0; i < 80; ++i) {
    const Geometry g = random.geometry(static_cast<size_t>(random.pick(1, 3)), 5, i % 3 == 0 ? 3 : 1);
    const WindowOp op = kOps[i % 4];
    SCOPED_TRACE(g.text() + " op " + std::to_string(i % 4));
    const Array x = random.integers(g.in), ct = random.integers(g.out());
    const Array dx = grad([&](const Array& a) {
      return sum(where(ct == 0.0, 0.0, reduce_window(a, identity_of(op), op, options_of(g)) * ct));
    })(x);
    EXPECT_EQ(dx.to_vector<double>(), gradient(g, x.to_vector<double>(), ct.to_vector<double>(), op));
  }
}

TEST(ReduceWindow, BatchesAsALoop) {
  Random random(3);
  for (int i = 0; i < 16; ++i) {
    const Geometry g = random.geometry(2, 6, 2);
    const WindowOp op = kOps[i % 4];
    const Array x = stack({random.integers(g.in), random.integers(g.in), random.integers(g.in)}, 1);
    const auto f = [&](const Array& a) { return reduce_window(a, identity_of(op), op, options_of(g)); };
    const Array y = vmap(f, {.in_axes = {1}})(x);
    for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(at(y, k).to_vector<double>(), f(at(x, k, 1)).to_vector<double>());
  }
}

TEST(ReduceWindow, SupportsEveryElementType) {
  const ReduceWindowOptions two{.window_dimensions = 2};
  EXPECT_TEXT(reduce_window(array({3, -1, 2}), 0, WindowOp::add, two), "i32[2] [2, 1]");
  EXPECT_TEXT(reduce_window(array({3, -1, 2}), 1, WindowOp::mul, two), "i32[2] [-3, -2]");
  EXPECT_TEXT(reduce_window(array({3, -1, 2}), 100, WindowOp::min, two), "i32[2] [-1, -1]");
  const Array least = Array::from(std::vector<int32_t>{INT32_MIN, 5, INT32_MIN}, {3});
  EXPECT_EQ(reduce_window(least, INT32_MAX, WindowOp::min, two).to_vector<int32_t>(),
            (std::vector<int32_t>{INT32_MIN, INT32_MIN}));
  EXPECT_EQ(reduce_window(astype(array({7, 250, 3}), u8), 255, WindowOp::min, two).to_vector<int32_t>(),
            (std::vector<int32_t>{7, 3}));
  EXPECT_EQ(reduce_window(array({true, false, false}), false, WindowOp::max, two).to_vector<int32_t>(),
            (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(reduce_window(array({true, true, false}), true, WindowOp::min, two).to_vector<int32_t>(),
            (std::vector<int32_t>{1, 0}));
  // Summed in f32 and rounded once: in bf16, 256 + 1 is 256.
  const Array rows = astype(reshape(array({256.0f, 1.0f, 1.0f, 1.0f}), {1, 2, 2}), bf16);
  EXPECT_ELEMENTS(reduce_window(rows, 0, WindowOp::add, {.window_dimensions = {1, 2, 2}}), {260}, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> y =
      reduce_window(array({1.0, nan, 0.0, 2.0}), kInfinity, WindowOp::min, two).to_vector<double>();
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 0);
}

TEST(ReduceWindow, EmptyArraysHaveEmptyResults) {
  EXPECT_EQ(reduce_window(zeros({0, 5}), 0, WindowOp::add, {.window_dimensions = {1, 2}}).shape(), (Shape{0, 4}));
  EXPECT_ELEMENTS(reduce_window(zeros({0}), 0, WindowOp::add, {.window_dimensions = 2, .padding = {{2, 1}}}), {0, 0},
                  0);
  EXPECT_EQ(reduce_window(Array(3.0f) * ones({}), 0, WindowOp::add, {}).shape(), Shape());
}

TEST(ReduceWindow, RejectsInvalidWindows) {
  const Array x = zeros({4, 5});
  EXPECT_THROWS(
      reduce_window(x, 0, WindowOp::add, {.window_dimensions = {2, 6}}), Error,
      "reduce_window: the window [2, 6] spans 6 along dimension 1 of [4, 5], which has 5 with padding; pad more");
  EXPECT_THROWS(reduce_window(x, 0, WindowOp::add, {.window_dimensions = {2, 2, 2}}), Error,
                "reduce_window: the window is [2, 2, 2], for 2 dimensions; give a number for each, or one for all");
  EXPECT_THROWS(reduce_window(x, x, WindowOp::add, {.window_dimensions = 2}), Error, "it must be a scalar");
  EXPECT_THROWS(reduce_window(x == 0, false, WindowOp::add, {.window_dimensions = 2}), Error, "has no arithmetic");
  EXPECT_THROWS(reduce_window(x, 0, WindowOp::add, {.window_dimensions = 2, .padding = "FULL"}), Error,
                "padding: \"FULL\" is neither \"SAME\", \"SAME_LOWER\" nor \"VALID\"");
}

TEST(PoolsOfAnyRank, MatchReduceWindow) {
  Random random(4);
  const Array line = random.integers({2, 9, 3}), volume = random.integers({2, 5, 4, 6, 3});
  const auto expect_same = [](const Array& a, const Array& b) {
    ASSERT_EQ(a.shape(), b.shape());
    EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>());
  };
  expect_same(max_pool(line), reduce_window(line, -kInfinity, WindowOp::max,
                                            {.window_dimensions = {1, 2, 1}, .window_strides = {1, 2, 1}}));
  const PoolOptions wide{.window = 3, .stride = 2, .padding = "SAME"};
  expect_same(min_pool(line, wide), -max_pool(-line, wide));
  expect_same(max_pool(volume, {.window = {3, 2, 1}, .stride = {2, 1, 3}, .padding = {{1, 1}, {0, 1}, {0, 0}}}),
              reduce_window(volume, -kInfinity, WindowOp::max,
                            {.window_dimensions = {1, 3, 2, 1, 1},
                             .window_strides = {1, 2, 1, 3, 1},
                             .padding = {{0, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 0}}}));
  expect_same(avg_pool(volume, {.window = 2, .stride = 1}),
              reduce_window(volume, 0, WindowOp::add, {.window_dimensions = {1, 2, 2, 2, 1}}) / 8.0);
  EXPECT_ELEMENTS(avg_pool(ones({1, 3, 3, 3, 1}), {.padding = "SAME", .count_padding = false}),
                  std::vector<double>(8, 1), 1e-6);
  // Two windows: the dimensions before the images are batches.
  const Array many = random.integers({2, 2, 4, 4, 3});
  expect_same(at(max_pool(many, {.window = {2, 2}}), 1), max_pool(at(many, 1)));
}

TEST(PatchesAndPools, RunInsideJitAndGrad) {
  const auto loss = [](const Array& x) {
    return sum(square(avg_pool(x, {.window = 3, .stride = 1, .padding = "SAME", .count_padding = false})));
  };
  const Array x = reshape(arange(20, f64), {1, 20, 1});
  EXPECT_ELEMENTS(jit(grad(loss))(x), grad(loss)(x).to_vector<double>(), 1e-12);
}

TEST(Resize, WeighsAsJaxDoes) {
  using image::Method;
  const Array x = array({0.0f, 1.0f, 2.0f, 3.0f});
  EXPECT_ELEMENTS(image::resize(x, {8}, Method::linear), {0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3}, 1e-6);
  EXPECT_ELEMENTS(image::resize(x, {2}, Method::linear), {5.0 / 7, 16.0 / 7}, 1e-6);
  EXPECT_ELEMENTS(image::resize(x, {2}, Method::linear, false), {0.5, 2.5}, 1e-6);
  EXPECT_ELEMENTS(image::resize(x, {3}, Method::nearest), {0, 2, 3}, 0);
  EXPECT_ELEMENTS(image::resize(x, {2}, Method::nearest), {1, 3}, 0);
  EXPECT_ELEMENTS(image::resize(x, {8}, Method::nearest), {0, 0, 1, 1, 2, 2, 3, 3}, 0);
  EXPECT_TEXT(image::resize(array({1, 2}), {4}, Method::nearest), "i32[4] [1, 1, 2, 2]");
  // Weights add up to 1, so constants stay; cubic and wider kernels keep lines away from the borders.
  for (const Method method : {Method::linear, Method::cubic, Method::lanczos3, Method::lanczos5})
    for (const int64_t n : {3, 5, 9})
      EXPECT_ELEMENTS(image::resize(full({5}, 2.0), {n}, method), std::vector<double>(static_cast<size_t>(n), 2), 1e-6);
  const std::vector<double> line = image::resize(arange(16, f64), {32}, Method::cubic).to_vector<double>();
  for (size_t i = 6; i < 26; ++i) EXPECT_NEAR(line[i], (static_cast<double>(i) + 0.5) / 2 - 0.5, 1e-12);
  const Array images = reshape(arange(2 * 4 * 6 * 3, f32), {2, 4, 6, 3});
  EXPECT_EQ(image::resize(images, {2, 8, 3, 3}, Method::cubic).shape(), (Shape{2, 8, 3, 3}));
  EXPECT_EQ(image::resize(images, {2, 4, 0, 3}, Method::linear).shape(), (Shape{2, 4, 0, 3}));
}

TEST(Resize, TranslatesAndScales) {
  using image::Method;
  const Array x = array({1.0f, 2.0f, 3.0f, 4.0f});
  EXPECT_ELEMENTS(image::scale_and_translate(x, {4}, {0}, {1}, {1}, Method::linear), {0, 1, 2, 3}, 1e-6);
  EXPECT_ELEMENTS(image::scale_and_translate(x, {3}, {-1}, {1}, {-0.5}, Method::linear), {1.5, 2.5, 3.5}, 1e-6);
  const Array g = grad([](const Array& a) { return sum(image::resize(a, {8}, Method::linear)); })(x);
  EXPECT_ELEMENTS(g, {2, 2, 2, 2}, 1e-6);
}

TEST(Resize, RejectsShapesThatDoNotFit) {
  using image::Method;
  EXPECT_THROWS(image::resize(zeros({4, 4}), {4}, Method::linear), Error,
                "image::resize: [4, 4] has 2 dimensions and the new shape [4] has 1; both must have the same number");
  EXPECT_THROWS(image::resize(zeros({4, 0}), {4, 2}, Method::linear), Error, "dimension 1 of [4, 0] is empty");
  EXPECT_THROWS(image::resize(zeros({4}), {-1}, Method::linear), Error, "extents must not be negative");
  EXPECT_THROWS(image::scale_and_translate(zeros({4}), {4}, {0}, {1}, {0}, Method::nearest), Error,
                "the method is nearest");
  EXPECT_THROWS(image::scale_and_translate(zeros({4}), {4}, {0}, {1, 2}, {0}, Method::linear), Error,
                "1 dimensions, 2 scales and 1 translations");
  EXPECT_THROWS(image::scale_and_translate(zeros({4, 4}), {4, 2}, {0}, {1}, {0}, Method::linear), Error,
                "list all dimensions that change");
}

}  // namespace
}  // namespace lockstep
