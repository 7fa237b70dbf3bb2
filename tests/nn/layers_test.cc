#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/nn.h"
#include "nn/differences.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

TEST(Dense, ComputesXTimesWPlusB) {
  const nn::Dense layer{array({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}}), array({10.f, 20.f})};
  EXPECT_TEXT(nn::apply(layer, array({{1.f, 1.f, 1.f}})), "f32[1,2] [[19, 32]]");
  EXPECT_TEXT(nn::apply(layer, array({1.f, 0.f, 0.f})), "f32[2] [11, 22]");
  EXPECT_EQ(nn::apply(layer, ones({4, 5, 3})).shape(), (Shape{4, 5, 2}));
}

TEST(Dense, StartsWithHeNormalWeightsAndZeroBiases) {
  const nn::Dense layer = nn::dense(random::key(1), 400, 50);
  EXPECT_EQ(layer.w.type(), (Type{f32, {400, 50}}));
  EXPECT_EQ(layer.b.to_vector<float>(), std::vector<float>(50));
  EXPECT_NEAR(standard_deviation(layer.w).item<double>(), std::sqrt(2.0 / 400), 1e-3);
}

TEST(Dense, WrongNumberOfFeaturesIsRejected) {
  const nn::Dense layer = nn::dense(random::key(1), 784, 10);
  const int line = __LINE__ + 1;
  EXPECT_ERROR(nn::apply(layer, ones({2, 30})), "layers_test.cc:" + std::to_string(line) + ": nn::apply: x [2, 30]");
  EXPECT_ERROR(nn::apply(layer, ones({2, 30})),
               "nn::apply: x [2, 30] has 30 features, but w [784, 10] takes 784; give [..., 784]");
  EXPECT_ERROR(nn::apply(layer, Array(1.f)), "has 0 features, but w [784, 10] takes 784");
  EXPECT_ERROR(nn::apply(nn::Dense{ones({3, 2}), ones({3})}, ones({1, 3})),
               "nn::apply: a dense layer has w [3, 2] and b [3]; they must be [in, out] and [out]");
  EXPECT_ERROR(nn::dense(random::key(1), 0, 10), "nn::dense: 0 inputs and 10 outputs; both must be positive");
}

TEST(Linear, ComputesXTimesWPlusAnOptionalBias) {
  const nn::Linear layer{array({{1.f, 2.f}, {3.f, 4.f}}), array({10.f, 20.f})}, plain{layer.w, std::nullopt};
  EXPECT_TEXT(nn::apply(layer, array({{1.f, 1.f}})), "f32[1,2] [[14, 26]]");
  EXPECT_TEXT(nn::apply(plain, array({{1.f, 1.f}})), "f32[1,2] [[4, 6]]");
  EXPECT_EQ(tree_leaves(plain).size(), 1U);
  EXPECT_FALSE(nn::linear(random::key(1), 3, 4, false).b.has_value());
  EXPECT_EQ(nn::linear(random::key(1), 3, 4).b->shape(), (Shape{4}));
}

TEST(Linear, ResultHasTheTypeOfX) {
  const nn::Linear layer = nn::linear(random::key(1), 3, 4);
  for (const DType dtype : {bf16, f16, f32, f64}) EXPECT_EQ(nn::apply(layer, ones({2, 3}, dtype)).dtype(), dtype);
  EXPECT_EQ(nn::apply(layer, ones({2, 3}, i32)).dtype(), f32);
}

TEST(Linear, WrongShapesAreRejected) {
  const nn::Linear layer = nn::linear(random::key(1), 3, 4);
  EXPECT_ERROR(nn::apply(layer, ones({2, 5})), "nn::apply: x [2, 5] has 5 features, but w [3, 4] takes 3");
  EXPECT_ERROR(nn::apply(nn::Linear{ones({3, 2}), ones({3})}, ones({1, 3})),
               "nn::apply: a linear layer has w [3, 2] and b [3]; they must be [in, out] and [out]");
  EXPECT_ERROR(nn::linear(random::key(1), 3, 0), "nn::linear: 3 inputs and 0 outputs; both must be positive");
}

TEST(Embedding, TakesRows) {
  const nn::Embedding layer{array({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}})};
  EXPECT_TEXT(nn::apply(layer, array({{2, 0}})), "f32[1,2,2] [[[5, 6], [1, 2]]]");
  EXPECT_TEXT(nn::apply(layer, array({7})), "f32[1,2] [[5, 6]]");
  EXPECT_NEAR(standard_deviation(nn::embedding(random::key(1), 100, 50).table).item<double>(), 0.02, 1e-3);
}

TEST(Embedding, GradientAddsUpOverEqualRows) {
  const Array g = grad([](Array table) {
    return sum(nn::apply(nn::Embedding{table}, array({1, 1, 2})));
  })(ones({3, 2}));
  EXPECT_TEXT(g, "f32[3,2] [[0, 0], [2, 2], [1, 1]]");
}

TEST(Embedding, OtherTypesAreRejected) {
  const nn::Embedding layer = nn::embedding(random::key(1), 4, 2);
  EXPECT_ERROR(nn::apply(layer, ones({3})),
               "nn::apply: an embedding takes integers, not f32[3]; convert them with astype(x, i32)");
  EXPECT_ERROR(nn::apply(layer, array({true})), "an embedding takes integers, not bool[1]");
  EXPECT_ERROR(nn::embedding(random::key(1), 0, 2), "nn::embedding: 0 rows of 2 features; both must be positive");
}

TEST(Conv2d, UsesStrideDilationAndGroups) {
  const nn::Conv2d layer{random::normal(random::key(1), {3, 3, 2, 6}), array({1.f, 2.f, 3.f, 4.f, 5.f, 6.f})};
  const Array x = random::normal(random::key(2), {2, 9, 9, 4});
  const Conv2dOptions options{.stride = 2, .padding = "VALID", .dilation = 2, .groups = 2};
  const Array y = nn::apply(layer, x, options);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 3, 6}));
  // Output o of image n at (r, c): group o / 3 reads the channels 2 g and 2 g + 1.
  const auto at_index = [](const Array& a, std::initializer_list<int64_t> index) {
    int64_t flat = 0, d = 0;
    for (int64_t i : index) flat = flat * a.shape(d++) + i;
    return a.to_vector<double>()[static_cast<size_t>(flat)];
  };
  for (const int64_t o : {0, 4}) {
    double wanted = at_index(layer.b, {o});
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 3; ++j)
        for (int64_t c = 0; c < 2; ++c)
          wanted += at_index(x, {1, 2 + 2 * i, 4 + 2 * j, o / 3 * 2 + c}) * at_index(layer.w, {i, j, c, o});
    EXPECT_NEAR(at_index(y, {1, 1, 2, o}), wanted, 1e-5);
  }
}

TEST(Conv2d, ComputesConvolutionPlusBias) {
  const nn::Conv2d layer{ones({3, 3, 1, 2}), array({0.f, 100.f})};
  const Array y = nn::apply(layer, ones({1, 3, 3, 1}));
  EXPECT_ELEMENTS(y, {4, 104, 6, 106, 4, 104, 6, 106, 9, 109, 6, 106, 4, 104, 6, 106, 4, 104}, 0);
  EXPECT_EQ(nn::apply(layer, ones({1, 3, 3, 1}), {.padding = "VALID"}).shape(), (Shape{1, 1, 1, 2}));
}

TEST(Conv2d, InitialWeightsUseTheFanOfTheFilter) {
  const nn::Conv2d layer = nn::conv2d(random::key(1), {5, 3}, 16, 32);
  EXPECT_EQ(layer.w.type(), (Type{f32, {5, 3, 16, 32}}));
  EXPECT_NEAR(standard_deviation(layer.w).item<double>(), std::sqrt(2.0 / 240), 2e-3);
}

TEST(Conv2d, MismatchedShapesAreRejected) {
  const nn::Conv2d layer = nn::conv2d(random::key(1), 3, 2, 4);
  EXPECT_ERROR(nn::apply(layer, ones({1, 8, 8, 3})), "the images have 3 channels, the filters take 2 per group");
  EXPECT_ERROR(nn::apply(nn::Conv2d{ones({3, 3, 1, 2}), ones({1})}, ones({1, 3, 3, 1})),
               "nn::apply: a convolution has w [3, 3, 1, 2] and b [1]; they must be [kh, kw, in, out] and [out]");
  EXPECT_ERROR(nn::conv2d(random::key(1), 0, 1, 1), "nn::conv2d: the kernel is 0 x 0; it must be at least 1 x 1");
  EXPECT_ERROR(nn::conv2d(random::key(1), 3, 1, 0), "nn::conv2d: 1 inputs and 0 outputs; both must be positive");
}

TEST(LayerNorm, HasMeanZeroAndVarianceOne) {
  const Array x = random::normal(random::key(1), {6, 50}) * 7.f + 1000.f, y = nn::apply(nn::layer_norm(50), x);
  EXPECT_ELEMENTS(mean(y, 1), std::vector<double>(6), 1e-4);
  EXPECT_ELEMENTS(var(y, 1), std::vector<double>(6, 1.0), 1e-4);
}

TEST(LayerNorm, AppliesScaleAndBias) {
  const nn::LayerNorm layer{array({2.f, 3.f}), array({10.f, 20.f})};
  EXPECT_ELEMENTS(nn::apply(layer, array({{-1.f, 1.f}}), 0.0), {8, 23}, 1e-6);
  // Constant input: epsilon keeps the result finite.
  EXPECT_ELEMENTS(nn::apply(layer, array({{5.f, 5.f}})), {10, 20}, 0);
}

TEST(LayerNorm, GradientsMatchFiniteDifferences) {
  const Array x = astype(random::normal(random::key(2), {3, 5}), f64);
  const Array scale = astype(random::normal(random::key(3), {5}), f64);
  const Array bias = astype(random::normal(random::key(4), {5}), f64);
  const Array factors = astype(random::normal(random::key(5), {3, 5}), f64);
  expect_gradient([&](Array v) { return sum(factors * nn::apply(nn::LayerNorm{scale, bias}, v)); }, x);
  expect_gradient([&](Array v) { return sum(factors * nn::apply(nn::LayerNorm{v, bias}, x)); }, scale);
  expect_gradient([&](Array v) { return sum(factors * nn::apply(nn::LayerNorm{scale, v}, x)); }, bias);
}

TEST(LayerNorm, LowPrecisionIsComputedInF32) {
  // The squares overflow f16.
  const Array x = astype(array({{-1000.f, 1000.f}}), f16);
  const nn::LayerNorm layer{ones({2}, f16), zeros({2}, f16)};
  EXPECT_TEXT(nn::apply(layer, x), "f16[1,2] [[-1, 1]]");
}

TEST(LayerNorm, MismatchedShapesAreRejected) {
  EXPECT_ERROR(nn::apply(nn::layer_norm(3), ones({2, 4})),
               "nn::apply: x is [2, 4], but the layer norm has scale [3] and bias [3]; give x as [..., "
               "features]");
  EXPECT_ERROR(nn::apply(nn::layer_norm(3), ones({2, 3}), -1), "the epsilon of a layer norm is -1");
  EXPECT_ERROR(nn::layer_norm(0), "nn::layer_norm: 0 features; the number must be positive");
}

TEST(Flatten, KeepsTheFirstDimension) {
  EXPECT_EQ(nn::flatten(ones({5, 2, 3, 4})).shape(), (Shape{5, 24}));
  EXPECT_EQ(nn::flatten(ones({5, 2})).shape(), (Shape{5, 2}));
  EXPECT_EQ(nn::flatten(ones({5})).shape(), (Shape{5, 1}));
  EXPECT_ERROR(nn::flatten(Array(1.f)), "nn::flatten: a scalar has no examples; give [n, ...]");
}

TEST(Dropout, DropsTheRateAndKeepsTheMean) {
  constexpr int64_t kCount = 100000;
  for (const double rate : {0.1, 0.5, 0.9}) {
    const Array y = nn::dropout({.training = true, .key = random::key(7)}, 0, ones({kCount}), rate);
    int64_t dropped = 0;
    for (float v : y.data<float>()) {
      if (v == 0)
        ++dropped;
      else
        ASSERT_EQ(v, static_cast<float>(1 / (1 - rate)));
    }
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(static_cast<double>(dropped), rate * kCount, 5 * std::sqrt(rate * (1 - rate) * kCount));
  }
}

TEST(Dropout, IsAFunctionOfKeyAndSite) {
  const auto mask = [](uint64_t seed, int64_t site) {
    return nn::dropout({.training = true, .key = random::key(seed)}, site, ones({1000}), 0.5).to_vector<float>();
  };
  EXPECT_EQ(mask(1, 0), mask(1, 0));
  EXPECT_NE(mask(1, 0), mask(2, 0));
  EXPECT_NE(mask(1, 0), mask(1, 1));
  const auto compiled =
      jit([](Array key) { return nn::dropout({.training = true, .key = key}, 0, ones({1000}), 0.5); });
  EXPECT_EQ(compiled(random::key(1)).to_vector<float>(), mask(1, 0));
}

TEST(Dropout, DoesNotDependOnTheNumberOfDevices) {
  const Array x = random::normal(random::key(1), {24, 10});
  const auto f = jit([](Array v, Array key) { return nn::dropout({.training = true, .key = key}, 3, v, 0.4); });
  const std::vector<float> whole = f(x, random::key(9)).to_vector<float>();
  for (const int n : {2, 3, 8}) {
    const NamedSharding rows(make_mesh({{"data", n}}), P("data"));
    const Array y = f(device_put(x, rows), random::key(9));
    EXPECT_EQ(y.to_vector<float>(), whole) << n << " devices";
    EXPECT_FALSE(y.is_fully_replicated());
  }
}

TEST(Dropout, GradientIsZeroForDroppedElements) {
  const nn::Mode mode{.training = true, .key = random::key(5)};
  const Array kept = nn::dropout(mode, 0, ones({100}), 0.5);
  const Array g = grad([&](Array x) { return sum(nn::dropout(mode, 0, x, 0.5)); })(full({100}, 3.f));
  EXPECT_EQ(g.to_vector<float>(), kept.to_vector<float>());
}

TEST(Dropout, IsTheIdentityWhenNotTrainingOrAtRateZero) {
  const Array x = ones({3});
  EXPECT_EQ(nn::dropout({}, 0, x, 0.5).node(), x.node());
  EXPECT_EQ(nn::dropout({.training = true, .key = random::key(0)}, 0, x, 0).node(), x.node());
  EXPECT_EQ(nn::dropout({.training = true, .key = random::key(0)}, 0, ones({3}, bf16), 0.5).dtype(), bf16);
}

TEST(Dropout, InvalidValuesAreRejected) {
  for (const double rate : {-0.1, 1.0, std::nan("")})
    EXPECT_ERROR(nn::dropout({}, 0, ones({3}), rate), "it must be at least 0 and less than 1");
  EXPECT_ERROR(nn::dropout({.training = true}, 0, ones({3}), 0.5),
               "nn::dropout: training without a key; set Mode::key, a new one for every step");
}

}  // namespace
}  // namespace lockstep
