#include "lockstep/losses.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "nn/differences.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

Array some_logits() { return astype(random::normal(random::key(3), {5, 4}), f64) * 3.0; }
Array some_labels() { return array({2, 0, 3, 1, 2}); }

// -sum over classes of target * log softmax, in plain doubles.
std::vector<double> by_formula(const Array& logits, const std::vector<double>& targets) {
  const std::vector<double> z = logits.to_vector<double>();
  const auto classes = static_cast<size_t>(logits.shape(-1));
  std::vector<double> out;
  for (size_t row = 0; row < z.size(); row += classes) {
    double total = 0, loss = 0;
    for (size_t c = 0; c < classes; ++c) total += std::exp(z[row + c]);
    for (size_t c = 0; c < classes; ++c) loss -= targets[row + c] * (z[row + c] - std::log(total));
    out.push_back(loss);
  }
  return out;
}

std::vector<double> smoothed(const Array& weights, double amount) {
  std::vector<double> out = weights.to_vector<double>();
  const auto classes = static_cast<size_t>(weights.shape(-1));
  for (size_t row = 0; row < out.size(); row += classes) {
    double whole = 0;
    for (size_t c = 0; c < classes; ++c) whole += out[row + c];
    for (size_t c = 0; c < classes; ++c)
      out[row + c] = (1 - amount) * out[row + c] + amount * whole / static_cast<double>(classes);
  }
  return out;
}

TEST(CrossEntropy, MatchesTheFormulaForLabelsAndWeights) {
  const Array z = some_logits(), labels = some_labels(), hot = one_hot(labels, 4, f64);
  for (const double smoothing : {0.0, 0.1, 0.5}) {
    const std::vector<double> wanted = by_formula(z, smoothed(hot, smoothing));
    const CrossEntropyOptions options{.label_smoothing = smoothing};
    EXPECT_ELEMENTS(softmax_cross_entropy(z, labels, options), wanted, 1e-13);
    EXPECT_ELEMENTS(softmax_cross_entropy(z, hot, options), wanted, 1e-13);
    EXPECT_ELEMENTS(softmax_cross_entropy(astype(z, f32), labels, options), wanted, 3e-6);
    EXPECT_ELEMENTS(softmax_cross_entropy(astype(z, f32), astype(hot, f32), options), wanted, 3e-6);
    for (const DType dtype : {u8, i64, u32})
      EXPECT_ELEMENTS(softmax_cross_entropy(z, astype(labels, dtype), options), wanted, 1e-13);
    // Weights that do not sum to 1, and a row of zero weights.
    Array weights = hot * 0.5 + astype(random::uniform(random::key(4), {5, 4}), f64);
    weights = weights * reshape(astype(array({1.f, 1.f, 0.f, 2.f, 1.f}), f64), {5, 1});
    EXPECT_ELEMENTS(softmax_cross_entropy(z, weights, options), by_formula(z, smoothed(weights, smoothing)), 1e-12);
  }
}

TEST(CrossEntropy, GradientsMatchFiniteDifferences) {
  const Array labels = some_labels(), hot = one_hot(labels, 4, f64) + 0.25;
  for (const double smoothing : {0.0, 0.2}) {
    const CrossEntropyOptions options{.label_smoothing = smoothing};
    const Array factors = astype(array({1.f, -2.f, 0.5f, 3.f, 1.f}), f64);
    expect_gradient([&](Array z) { return sum(factors * softmax_cross_entropy(z, labels, options)); }, some_logits());
    expect_gradient([&](Array z) { return sum(factors * softmax_cross_entropy(z, hot, options)); }, some_logits());
    expect_gradient([&](Array w) { return sum(factors * softmax_cross_entropy(some_logits(), w, options)); }, hot);
  }
}

TEST(CrossEntropy, GradientIsSoftmaxMinusOneHot) {
  const Array z = astype(some_logits(), f32), labels = some_labels();
  const Array g = grad([&](Array x) { return sum(softmax_cross_entropy(x, labels)); })(z);
  EXPECT_ELEMENTS(g, (softmax(z) - one_hot(labels, 4)).to_vector<double>(), 1e-6);
}

TEST(CrossEntropy, LeadingDimensionsAreExamples) {
  const Array z = reshape(some_logits(), {5, 1, 4});
  EXPECT_EQ(softmax_cross_entropy(z, reshape(some_labels(), {5, 1})).shape(), (Shape{5, 1}));
  EXPECT_EQ(softmax_cross_entropy(ones({3}), Array(1)).shape(), Shape{});
  EXPECT_EQ(softmax_cross_entropy(ones({0, 3}), zeros({0}, i32)).shape(), Shape{0});
}

TEST(CrossEntropy, LowPrecisionIsComputedInF32) {
  const Array labels = some_labels();
  for (const DType dtype : {bf16, f16}) {
    const Array low = astype(some_logits(), dtype), loss = softmax_cross_entropy(low, labels);
    EXPECT_EQ(loss.dtype(), f32);
    EXPECT_EQ(loss.to_vector<float>(), softmax_cross_entropy(astype(low, f32), labels).to_vector<float>());
    EXPECT_EQ(grad([&](Array x) { return mean(softmax_cross_entropy(x, labels)); })(low).dtype(), dtype);
  }
}

TEST(CrossEntropy, LargeLogitsNeitherOverflowNorCancel) {
  EXPECT_ELEMENTS(softmax_cross_entropy(array({{1e4f, 1e4f}, {-1e30f, 1e30f}, {1000.f, 0.f}}), array({0, 1, 1})),
                  {std::log(2.0), 0, 1000}, 1e-6);
  const float inf = std::numeric_limits<float>::infinity();
  // An excluded class.
  const Array masked = array({{0.f, -inf, 0.f}});
  EXPECT_ELEMENTS(softmax_cross_entropy(masked, array({2})), {std::log(2.0)}, 1e-6);
  EXPECT_ELEMENTS(grad([](Array z) { return sum(softmax_cross_entropy(z, array({2}))); })(masked), {0.5, 0, -0.5},
                  1e-6);
}

TEST(CrossEntropy, LabelsOutsideTheClassesGiveNaN) {
  const std::vector<double> losses = softmax_cross_entropy(ones({4, 3}), array({0, 3, -1, 2})).to_vector<double>();
  EXPECT_NEAR(losses[0], std::log(3.0), 1e-6);
  EXPECT_TRUE(std::isnan(losses[1]));
  EXPECT_TRUE(std::isnan(losses[2]));
  EXPECT_NEAR(losses[3], std::log(3.0), 1e-6);
}

TEST(CrossEntropy, U8LabelsWorkWithMoreThan255Classes) {
  const Array labels = astype(array({0, 200, 255}), u8);
  EXPECT_ELEMENTS(softmax_cross_entropy(ones({3, 300}), labels), std::vector<double>(3, std::log(300.0)), 1e-5);
}

TEST(CrossEntropy, InvalidLabelsAreRejected) {
  const Array z = ones({5, 4});
  EXPECT_ERROR(softmax_cross_entropy(z, zeros({4}, i32)),
               "softmax_cross_entropy: labels i32[4] for logits f32[5,4]; integer labels must be [5]");
  EXPECT_ERROR(softmax_cross_entropy(z, zeros({5, 1}, i32)), "integer labels must be [5]");
  EXPECT_ERROR(softmax_cross_entropy(z, zeros({5, 4}, i32)),
               "integer labels must be [5]; one-hot labels are floating, use astype(labels, f32)");
  EXPECT_ERROR(softmax_cross_entropy(z, zeros({5})),
               "weights of the classes must be [5, 4]; class numbers are integers, use astype(labels, i32)");
  EXPECT_ERROR(softmax_cross_entropy(z, zeros({5, 3})), "weights of the classes must be [5, 4]");
  EXPECT_ERROR(softmax_cross_entropy(z, zeros({5}, boolean)), "softmax_cross_entropy: the labels are bool[5]");
  EXPECT_ERROR(softmax_cross_entropy(zeros({5, 4}, i32), zeros({5}, i32)),
               "softmax_cross_entropy: the logits are i32[5,4]; they must be floating, [..., classes]");
  EXPECT_ERROR(softmax_cross_entropy(Array(1.f), Array(0)), "softmax_cross_entropy: the logits are f32[]");
  EXPECT_ERROR(softmax_cross_entropy(zeros({5, 0}), zeros({5}, i32)), "logits [5, 0] have no classes");
  EXPECT_ERROR(is_correct(z, zeros({4}, i32)), "is_correct: labels i32[4] for logits f32[5,4]");
  for (const double smoothing : {-0.1, 1.0, std::nan("")})
    EXPECT_ERROR(softmax_cross_entropy(z, zeros({5}, i32), {.label_smoothing = smoothing}),
                 "it must be at least 0 and less than 1");
}

TEST(MeanSquaredError, ReturnsOneValuePerExample) {
  const Array p = array({{1.f, 2.f}, {3.f, 4.f}}), t = array({{1.f, 0.f}, {0.f, 0.f}});
  EXPECT_TEXT(mean_squared_error(p, t), "f32[2] [2, 12.5]");
  EXPECT_TEXT(mean_squared_error(array({1.f, 2.f}), array({0.f, 0.f})), "f32[2] [1, 4]");
  EXPECT_TEXT(mean_squared_error(Array(3.f), Array(1.f)), "f32[] 4");
  EXPECT_TEXT(mean_squared_error(reshape(p, {2, 1, 2}), reshape(t, {2, 1, 2})), "f32[2] [2, 12.5]");
  // 300^2 overflows f16.
  EXPECT_TEXT(mean_squared_error(astype(array({300.f}), f16), astype(array({0}), i32)), "f32[1] [90000]");
  expect_gradient([&](Array x) { return sum(mean_squared_error(x, astype(t, f64))); }, astype(p, f64));
}

TEST(MeanSquaredError, ShapesMustBeEqual) {
  EXPECT_ERROR(mean_squared_error(ones({5, 1}), ones({5})),
               "mean_squared_error: prediction [5, 1] and target [5]; the shapes must be equal");
}

TEST(IsCorrect, ComparesTheLargestLogit) {
  const Array z = array({{0.f, 2.f, 1.f}, {3.f, 2.f, 1.f}, {1.f, 1.f, 0.f}});
  EXPECT_EQ(is_correct(z, array({1, 2, 0})).to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(is_correct(astype(z, bf16), astype(array({1, 2, 0}), u8)).to_vector<bool>(),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(is_correct(z, one_hot(array({1, 2, 0}), 3)).to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(is_correct(z, array({1, 2, 0})).dtype(), boolean);
}

// As in a softmax: an infinite logit makes NaN of its row, and of all of its gradients, and of no other row.
TEST(CrossEntropy, AnInfiniteLogitMakesNaNOfItsRow) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t classes : {3, 100, 5000})
    for (const DType dtype : {f32, f64, bf16, f16}) {
      const Array z = zeros({2, classes}, dtype).at(0, 2).set(astype(Array(inf), dtype));
      const auto loss = [&](Array v) { return astype(softmax_cross_entropy(v, array({1, 1})), f32); };
      const auto gradient = grad([&](Array v) { return sum(loss(v)); });
      for (const auto& [losses, gradients] :
           {std::pair{loss(z), gradient(z)}, std::pair{jit(loss)(z), jit(gradient)(z)}}) {
        EXPECT_TEXT(isnan(losses), "bool[2] [true, false]");
        EXPECT_TEXT(sum(astype(isnan(gradients), i32), -1), fmt::format("i32[2] [{}, 0]", classes));
      }
    }
}

}  // namespace
}  // namespace lockstep
