// Products in 8-bit floats with delayed scaling: values, gradients, and the history of largest values.
#include "lockstep/float8_products.h"

#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <cmath>
#include <limits>

#include "array/near.h"
#include "base/throws.h"
#include "lockstep/nn.h"
#include "lockstep/quantize.h"

namespace lockstep {
namespace {

Array numbers(uint64_t seed, Shape shape, double scale = 1) {
  return random::normal(random::key(seed), std::move(shape)) * scale;
}

// Scales that suit the largest absolute values.
Array scales_for(const Array& x, const Array& w, float gradient) {
  const Array limits = stack({full({}, 448.0f), full({}, 448.0f), full({}, 57344.0f)});
  return power_of_two_above(stack({max(abs(x)), max(abs(w)), full({}, gradient)}) / limits);
}

double relative_error(const Array& got, const Array& wanted) {
  const Array difference = astype(got, f32) - astype(wanted, f32);
  return std::sqrt(sum(square(difference)).item<double>() / sum(square(astype(wanted, f32))).item<double>());
}

TEST(Float8Products, ApproximateTheProductAndItsGradients) {
  const Array x = numbers(1, {3, 8, 48}), w = numbers(2, {48, 32}, 0.02), ct = numbers(3, {3, 8, 32}, 1e-6);
  const Array scales = scales_for(x, w, 4e-6f);
  const auto narrow = [&](const Array& a, const Array& b) { return sum(nn::float8_dot(a, b, scales) * ct); };
  const auto wide = [&](const Array& a, const Array& b) { return sum(dot(a, b) * ct); };
  EXPECT_LT(relative_error(nn::float8_dot(x, w, scales), dot(x, w)), 0.05);
  const auto [dx, dw] = grad<0, 1>(narrow)(x, w);
  const auto [wide_dx, wide_dw] = grad<0, 1>(wide)(x, w);
  EXPECT_LT(relative_error(dx, wide_dx), 0.1);
  EXPECT_LT(relative_error(dw, wide_dw), 0.1);
  EXPECT_EQ(dx.shape(), x.shape());
}

TEST(Float8Products, ResultsHaveTheTypeOfTheInput) {
  const Array x = astype(numbers(1, {4, 16}), bf16), w = numbers(2, {16, 8});
  EXPECT_EQ(nn::float8_dot(x, w, ones({3})).dtype(), bf16);
  nn::Float8Products float8({ones({3})});
  const nn::Linear layer{w, zeros({8})};
  EXPECT_EQ(nn::apply(layer, x, nn::Mode{.float8 = &float8}).type(), (Type{bf16, {4, 8}}));
  EXPECT_EQ(float8.used(), 1u);
}

TEST(Float8Products, TheGradientOfScalesIsTheLargestValues) {
  const Array x = numbers(1, {6, 16}), w = numbers(2, {16, 8}), ct = numbers(3, {6, 8});
  const auto loss = [&](const Array& scales) { return sum(nn::float8_dot(x, w, scales) * ct); };
  const std::vector<float> wanted = stack({max(abs(x)), max(abs(w)), max(abs(ct))}).to_vector<float>();
  EXPECT_EQ(grad(loss)(ones({3})).to_vector<float>(), wanted);
  EXPECT_EQ(grad(remat(loss))(ones({3})).to_vector<float>(), wanted);
  EXPECT_EQ(jit(grad(loss))(ones({3})).to_vector<float>(), wanted);
}

TEST(Float8Products, BatchesAreLoops) {
  const Array x = numbers(1, {3, 4, 16}), w = numbers(2, {16, 8}), scales = ones({3});
  const auto product = [&](const Array& each) { return nn::float8_dot(each, w, scales); };
  const Array all = vmap(product)(x);
  for (int64_t i = 0; i < 3; ++i) EXPECT_ELEMENTS(at(all, i), product(at(x, i)).to_vector<double>(), 1e-5);
}

TEST(Float8Products, SaturateBeyondTheScale) {
  const Array x = full({1, 1}, 1000.0f), w = full({1, 1}, 1.0f);
  EXPECT_EQ(nn::float8_dot(x, w, ones({3})).item<float>(), 448);
  EXPECT_EQ(nn::float8_dot(x, w, stack({full({}, 4.0f), full({}, 1.0f), full({}, 1.0f)})).item<float>(), 1024);
}

TEST(Float8Products, ScalesFollowTheLargestOfTheHistory) {
  Precision precision = precision_of("float8");
  precision.float8_history = 2;
  Float8History history = create_float8_history(precision, 2);
  const auto scale = [&](size_t product) { return float8_scales(history).at(product).to_vector<float>(); };
  EXPECT_EQ(scale(0), (std::vector<float>{1, 1, 1}));  // nothing is known
  const auto step = [&](const Array& a, const Array& b) { history = advanced(history, {a, b}); };
  step(array<float>({448, 449, 57344}), array<float>({0, 1, 28672}));
  EXPECT_EQ(scale(0), (std::vector<float>{1, 2, 1}));
  EXPECT_EQ(scale(1), (std::vector<float>{1, 0x1p-8f, 0.5f}));
  step(array<float>({1, 1, 1}), array<float>({7, 7, 7}));
  EXPECT_EQ(scale(0), (std::vector<float>{1, 2, 1}));  // the last two steps
  step(array<float>({1, 1, 1}), array<float>({7, 7, 7}));
  EXPECT_EQ(scale(0), (std::vector<float>{0x1p-8f, 0x1p-8f, 0x1p-15f}));
  EXPECT_EQ(scale(1), (std::vector<float>{0x1p-6f, 0x1p-6f, 0x1p-13f}));
}

TEST(Float8Products, ValuesThatAreNotFiniteAreForgotten) {
  Float8History history = create_float8_history(precision_of("float8"), 1);
  const float inf = std::numeric_limits<float>::infinity();
  history = advanced(history, {array<float>({std::nanf(""), inf, 28672})});
  EXPECT_EQ(float8_scales(history)[0].to_vector<float>(), (std::vector<float>{1, 1, 0.5f}));
}

TEST(Float8Products, HistoryOfOneStep) {
  Precision precision = precision_of("float8");
  precision.float8_history = 1;
  const Float8History history = create_float8_history(precision, 1);
  const std::vector<float> last{1, 2, 3};
  EXPECT_EQ(advanced(history, {Array::from(last, {3})}).largest[0].to_vector<float>(), last);
}

TEST(Float8Products, MistakesAreErrors) {
  nn::Float8Products float8({ones({3})});
  float8.next();
  EXPECT_THROWS(float8.next(), Error,
                "precision float8: the model applies more than 1 linear layers, but has only 1 weight matrices");
  EXPECT_THROWS(nn::float8_dot(ones({2, 3}), ones({4, 5}), ones({3})), Error,
                "nn::float8_dot: x is [2, 3] and w [4, 5]; they must be [..., in] and [in, out]");
  EXPECT_THROWS(nn::float8_dot(ones({2, 3}), ones({3, 5}), ones({2})), Error,
                "nn::float8_dot: the scales are f32[2]; they must be f32[3], of x, w and the gradient");
  Precision precision = precision_of("float8");
  EXPECT_THROWS(create_float8_history(precision, 0), Error, "precision float8: the model has no weight matrix");
  precision.float8_history = 0;
  EXPECT_THROWS(create_float8_history(precision, 1), Error,
                "precision float8: the history is 0 steps; give a number from 1 to 65536");
  EXPECT_TRUE(create_float8_history(precision_of("bfloat16"), 1).largest.empty());
}

TEST(Float8Products, PrecisionsHaveNames) {
  for (const char* name : {"float8", "f8", "fp8"}) {
    EXPECT_TRUE(precision_of(name).float8);
    EXPECT_EQ(precision_of(name).compute, bf16);
    EXPECT_EQ(to_string(precision_of(name)), "float8");
  }
}

}  // namespace
}  // namespace lockstep
