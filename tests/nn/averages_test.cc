#include "lockstep/averages.h"

#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

struct AveragedNet {
  Array w;
  std::vector<Array> rest;
};

TEST(Average, DecayGrowsToItsValue) {
  EXPECT_EQ(average_decay(0.999, 0), 0.1);
  EXPECT_EQ(average_decay(0.999, 1), 2.0 / 11);
  EXPECT_EQ(average_decay(0.999, 90), 0.91);
  EXPECT_EQ(average_decay(0.999, 8989), 8990.0 / 8999);
  EXPECT_EQ(average_decay(0.999, 8990), 0.999);
  EXPECT_EQ(average_decay(0.999, 1000000), 0.999);
  EXPECT_EQ(average_decay(0.05, 0), 0.05);
}

TEST(Average, MatchesTheClosedForm) {
  // a_n = product(d) a_0 + sum over i of (1 - d_i) p_i times the product of all later d.
  constexpr double kDecay = 0.9;
  constexpr int kSteps = 120;  // the warm-up ends at step 80
  const auto weight_at = [](int64_t i) { return std::sin(static_cast<double>(i)); };
  for (const DType dtype : {f64, f32}) {
    const auto step = jit([&](const AveragedNet& average, const AveragedNet& params,
                              const Array& i) { return update_average(average, params, kDecay, i); },
                          {.donate = {0}});
    AveragedNet average{full({2}, 3.0, dtype), {full({}, -1.0, dtype)}};
    for (int i = 0; i < kSteps; ++i) {
      const AveragedNet params{full({2}, weight_at(i), dtype), {full({}, weight_at(i + 7), dtype)}};
      average = step(average, params, Array(i));
    }
    double wanted = 0, other = 0, later = 1;
    for (int i = kSteps - 1; i >= 0; --i) {
      const double d = average_decay(kDecay, i);
      wanted += (1 - d) * later * weight_at(i), other += (1 - d) * later * weight_at(i + 7);
      later *= d;
    }
    wanted += later * 3, other -= later;
    const double tolerance = dtype == f64 ? 1e-14 : 1e-6;
    EXPECT_ELEMENTS(average.w, {wanted, wanted}, tolerance);
    EXPECT_ELEMENTS(average.rest[0], {other}, tolerance);
    EXPECT_EQ(average.w.dtype(), dtype);
  }
}

TEST(Average, OfConstantWeightsKeepsTheirBits) {
  const std::vector<Array> params{random::normal(random::key(0), {1000})};
  std::vector<Array> average = params;
  for (int i = 0; i < 20; ++i) average = update_average(average, params, 0.999, Array(i));
  EXPECT_EQ(average[0].to_vector<float>(), params[0].to_vector<float>());
}

TEST(Average, CopiesIntegers) {
  const std::vector<Array> next =
      update_average({array({1, 2}), ones({1})}, {array({5, 6}), zeros({1})}, 0.5, Array(0));
  EXPECT_TEXT(next[0], "i32[2] [5, 6]");
  EXPECT_ELEMENTS(next[1], {0.1}, 1e-7);
}

TEST(Average, InvalidArgumentsAreRejected) {
  const std::vector<Array> params{ones({2})};
  for (const double decay : {-0.1, 1.0, std::nan("")})
    EXPECT_ERROR(update_average(params, params, decay, Array(0)), "update_average: the decay is");
  EXPECT_ERROR(update_average(params, params, 0.5, Array(0.f)),
               "update_average: the step is f32[]; give an integer scalar");
  EXPECT_ERROR(update_average(params, params, 0.5, zeros({1}, i32)), "update_average: the step is i32[1]");
  EXPECT_ERROR(update_average({}, params, 0.5, Array(0)), "update_average: 0 averages, but 1 parameters");
  EXPECT_ERROR(update_average({ones({3})}, params, 0.5, Array(0)),
               "update_average: average 0 is f32[3], but the parameter is f32[2]; start with a copy");
}

}  // namespace
}  // namespace lockstep
