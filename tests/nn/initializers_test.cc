#include "lockstep/initializers.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

TEST(Fans, CountInputsAndOutputsOfEveryPosition) {
  const auto both = [](const Shape& s) { return std::pair{initializers::fans(s).in, initializers::fans(s).out}; };
  EXPECT_EQ(both({784, 256}), (std::pair<int64_t, int64_t>{784, 256}));
  EXPECT_EQ(both({5, 5, 32, 64}), (std::pair<int64_t, int64_t>{800, 1600}));
  EXPECT_ERROR(initializers::fans({10}),
               "initializers::fans: [10] has 1 dimensions; weights have inputs and outputs as the last two");
  EXPECT_ERROR(initializers::he_normal(random::key(0), {}), "initializers::fans: [] has 0 dimensions");
}

TEST(Initializers, HaveTheExpectedStandardDeviations) {
  using Init = Array (*)(const Operand&, const Shape&, DType);
  struct Case {
    Init normal, uniform;
    double sd;
  };
  const Shape shape{3, 3, 40, 80};  // fans 360 and 720
  for (const Case& c : {Case{initializers::he_normal, initializers::he_uniform, std::sqrt(2.0 / 360)},
                        Case{initializers::glorot_normal, initializers::glorot_uniform, std::sqrt(2.0 / 1080)},
                        Case{initializers::lecun_normal, initializers::lecun_uniform, std::sqrt(1.0 / 360)}}) {
    for (const Init f : {c.normal, c.uniform}) {
      const Array w = f(random::key(1), shape, f32);
      EXPECT_EQ(w.type(), (Type{f32, shape}));
      // 28,800 numbers: four standard errors are 1.7 %.
      EXPECT_NEAR(standard_deviation(w).item<double>() / c.sd, 1, 0.02);
      EXPECT_NEAR(mean(w).item<double>() / c.sd, 0, 0.03);
    }
    const double bound = c.sd * std::sqrt(3.0);
    const Array w = c.uniform(random::key(1), shape, f32);
    EXPECT_LE(max(abs(w)).item<double>(), bound * (1 + 1e-6));
    EXPECT_GE(max(abs(w)).item<double>(), bound * 0.99);
    // Truncated at 2 standard deviations of a normal distribution that is wider.
    const double most = max(abs(c.normal(random::key(1), shape, f32))).item<double>() / c.sd;
    EXPECT_LT(most, 2 / .87962566);
    EXPECT_GT(most, 2.2);
  }
}

TEST(VarianceScaling, HasThreeDistributions) {
  const Array key = random::fold_in(random::key(42), 1);
  using initializers::Distribution, initializers::FanMode;
  const auto scaled = [&](double scale, FanMode mode, Distribution distribution) {
    return initializers::variance_scaling(key, {20, 30}, {scale, mode, distribution}).to_vector<float>();
  };
  EXPECT_EQ(scaled(2, FanMode::in, Distribution::normal),
            (random::normal(key, {20, 30}) * static_cast<float>(std::sqrt(2.0 / 20))).to_vector<float>());
  EXPECT_EQ(
      scaled(3, FanMode::out, Distribution::truncated_normal),
      (random::truncated_normal(key, -2, 2, {20, 30}) * (std::sqrt(0.1) / .87962566103423978)).to_vector<float>());
  EXPECT_EQ(scaled(1, FanMode::average, Distribution::uniform),
            (random::uniform(key, {20, 30}, -1, 1) * std::sqrt(3.0 / 25)).to_vector<float>());
  EXPECT_EQ(scaled(2, FanMode::in, Distribution::truncated_normal),
            initializers::he_normal(key, {20, 30}).to_vector<float>());
  EXPECT_ERROR(initializers::variance_scaling(key, {2, 3}, {.in_axis = 2}),
               "initializers::variance_scaling: axis 2 is out of range for [2, 3]; valid axes: -2 to 1");
}

TEST(Orthogonal, WeightsHaveOrthonormalColumns) {
  const Array w = initializers::orthogonal(random::key(2), {3, 4, 5}, 2);
  const Array columns = reshape(w, {12, 5});
  EXPECT_ELEMENTS(matmul(transpose(columns), columns), (4 * eye(5)).to_vector<double>(), 1e-4);
  EXPECT_EQ(initializers::orthogonal(random::key(2), {3, 4, 5}, 1, 0).shape(), (Shape{3, 4, 5}));
  EXPECT_ERROR(initializers::orthogonal(random::key(2), {3}), "initializers::orthogonal: [3] has 1 dimensions");
  const Array filters = initializers::delta_orthogonal(random::key(2), {3, 3, 4, 5});
  const Array middle = at(at(filters, 1), 1);
  EXPECT_ELEMENTS(matmul(middle, transpose(middle)), eye(4).to_vector<double>(), 1e-5);
  EXPECT_NEAR(sum(filters * filters).item<float>(), 4, 1e-4);
  EXPECT_ERROR(initializers::delta_orthogonal(random::key(2), {3, 3, 5, 4}),
               "initializers::delta_orthogonal: [3, 3, 5, 4]");
}

TEST(Initializers, LowPrecisionIsRoundedF32) {
  for (const DType dtype : {bf16, f16})
    EXPECT_EQ(initializers::glorot_uniform(random::key(1), {9, 9}, dtype).to_vector<float>(),
              astype(initializers::glorot_uniform(random::key(1), {9, 9}), dtype).to_vector<float>());
  EXPECT_EQ(initializers::lecun_normal(random::key(1), {9, 9}, f64).dtype(), f64);
}

TEST(Initializers, NormalHasTheGivenStandardDeviation) {
  EXPECT_NEAR(standard_deviation(initializers::normal(random::key(1), {20000}, 0.1)).item<double>(), 0.1, 2e-3);
  EXPECT_NEAR(standard_deviation(initializers::normal(random::key(1), {20000})).item<double>(), 0.01, 2e-4);
  EXPECT_ERROR(initializers::normal(random::key(1), {2}, -1),
               "initializers::normal: the standard deviation is -1; it must be 0 or a positive number");
}

TEST(Initializers, UniformAndTruncatedNormal) {
  const Array u = initializers::uniform(random::key(1), {1000}, 0.5),
              t = initializers::truncated_normal(random::key(1), {1000}, 0.1);
  EXPECT_GE(min(u).item<float>(), 0);
  EXPECT_LT(max(u).item<float>(), 0.5f);
  EXPECT_LE(max(abs(t)).item<float>(), 0.2f);
}

TEST(Initializers, WeightsWithoutElementsAreAllowed) {
  EXPECT_EQ(initializers::he_normal(random::key(0), {0, 4}).shape(), (Shape{0, 4}));
}

}  // namespace
}  // namespace lockstep
