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
  using Init = Array (*)(const Array&, const Shape&, DType);
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
    EXPECT_GT(max(abs(c.normal(random::key(1), shape, f32))).item<double>(), 3 * c.sd);
  }
}

TEST(Initializers, HeNormalIsAScaledNormal) {
  const Array key = random::fold_in(random::key(42), 1);
  const Array wanted = random::normal(key, {20, 30}) * static_cast<float>(std::sqrt(2.0 / 20));
  EXPECT_EQ(initializers::he_normal(key, {20, 30}).to_vector<float>(), wanted.to_vector<float>());
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

TEST(Initializers, WeightsWithoutElementsAreAllowed) {
  EXPECT_EQ(initializers::he_normal(random::key(0), {0, 4}).shape(), (Shape{0, 4}));
}

}  // namespace
}  // namespace lockstep
