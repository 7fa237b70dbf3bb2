#include "lockstep/schedules.h"

#include <cmath>
#include <limits>

#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

using ScheduleKind = Schedule::Kind;

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

constexpr double kPi = 3.14159265358979323846;

const std::vector<Schedule>& examples() {
  static const std::vector<Schedule> all{
      {.peak = 0.1},
      {.kind = ScheduleKind::cosine, .peak = 1e-3, .total_steps = 4690},
      {.kind = ScheduleKind::cosine, .peak = 0.3, .end = 1e-5, .total_steps = 7},
      {.kind = ScheduleKind::warmup_cosine, .peak = 1e-3, .end = 1e-6, .warmup_steps = 100, .total_steps = 4690},
      {.kind = ScheduleKind::warmup_cosine, .peak = 1e-3, .end = 1e-6, .warmup_steps = 10, .total_steps = 10},
      {.kind = ScheduleKind::exponential, .peak = 0.2, .decay = 0.97, .every = 100},
      {.kind = ScheduleKind::step, .peak = 0.2, .decay = 0.1, .every = 30},
      {.kind = ScheduleKind::linear, .peak = 1e-3, .end = 1e-4, .warmup_steps = 100, .total_steps = 4690},
      {.kind = ScheduleKind::linear, .peak = 0.3, .total_steps = 7},
      {.kind = ScheduleKind::linear, .peak = 0.3, .warmup_steps = 7, .total_steps = 7},
      {.kind = ScheduleKind::inverse_sqrt, .peak = 1e-3, .warmup_steps = 100},
      {.kind = ScheduleKind::inverse_sqrt, .peak = 1e-3},
      {.kind = ScheduleKind::wsd, .peak = 1e-3, .end = 1e-5, .warmup_steps = 100, .total_steps = 4690},
      {.kind = ScheduleKind::wsd, .peak = 0.1, .warmup_steps = 5, .total_steps = 20, .decay_steps = 8},
      {.kind = ScheduleKind::wsd, .peak = 0.1, .warmup_steps = 5, .total_steps = 20, .decay_steps = 15},
  };
  return all;
}

TEST(Schedule, ValuesMatchTheFormulas) {
  EXPECT_EQ(examples()[0].at(0), 0.1);
  EXPECT_EQ(examples()[0].at(1000000), 0.1);
  const Schedule& cosine = examples()[1];
  EXPECT_EQ(cosine.at(0), 1e-3);
  EXPECT_NEAR(cosine.at(2345), 5e-4, 1e-18);
  EXPECT_NEAR(cosine.at(1000), 5e-4 * (1 + std::cos(kPi * 1000 / 4690)), 1e-18);
  EXPECT_EQ(cosine.at(4690), 0);
  EXPECT_EQ(cosine.at(9999), 0);
  EXPECT_EQ(examples()[2].at(7), 1e-5);
  const Schedule& warm = examples()[3];
  EXPECT_EQ(warm.at(0), 0);
  EXPECT_NEAR(warm.at(25), 2.5e-4, 1e-18);
  EXPECT_EQ(warm.at(100), 1e-3);
  EXPECT_NEAR(warm.at(100 + 2295), (1e-3 + 1e-6) / 2, 1e-18);
  EXPECT_EQ(warm.at(4690), 1e-6);
  const Schedule& only_warm = examples()[4];
  EXPECT_NEAR(only_warm.at(9), 9e-4, 1e-18);
  EXPECT_EQ(only_warm.at(10), 1e-6);
  EXPECT_NEAR(examples()[5].at(50), 0.2 * std::sqrt(0.97), 1e-15);
  EXPECT_NEAR(examples()[5].at(200), 0.2 * 0.97 * 0.97, 1e-15);
  EXPECT_EQ(examples()[6].at(29), 0.2);
  EXPECT_NEAR(examples()[6].at(30), 0.02, 1e-17);
  EXPECT_NEAR(examples()[6].at(89), 0.002, 1e-17);
}

TEST(Schedule, LinearRisesAndFallsToItsEnd) {
  const Schedule s{.kind = ScheduleKind::linear, .peak = 0.8, .end = 0.2, .warmup_steps = 4, .total_steps = 10};
  const double wanted[] = {0, 0.2, 0.4, 0.6, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2};
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(s.at(i), wanted[i], 1e-15) << i;
  EXPECT_EQ(s.at(10), 0.2);
  const Schedule plain{.kind = ScheduleKind::linear, .peak = 0.8, .total_steps = 4};
  EXPECT_EQ(plain.at(0), 0.8);
  EXPECT_NEAR(plain.at(3), 0.2, 1e-15);
  EXPECT_EQ(plain.at(4), 0);
  const Schedule only_warm{.kind = ScheduleKind::linear, .peak = 0.8, .warmup_steps = 4, .total_steps = 4};
  EXPECT_NEAR(only_warm.at(3), 0.6, 1e-15);
  EXPECT_EQ(only_warm.at(4), 0);
}

TEST(Schedule, InverseSquareRootContinuesTheWarmUp) {
  const Schedule s{.kind = ScheduleKind::inverse_sqrt, .peak = 0.5, .warmup_steps = 100};
  EXPECT_EQ(s.at(0), 0);
  EXPECT_NEAR(s.at(99), 0.495, 1e-15);
  EXPECT_EQ(s.at(100), 0.5);
  EXPECT_NEAR(s.at(101), 0.5 * std::sqrt(100.0 / 101), 1e-15);
  EXPECT_EQ(s.at(400), 0.25);
  EXPECT_EQ(s.at(1000000), 0.005);
  const Schedule cold{.kind = ScheduleKind::inverse_sqrt, .peak = 0.5};
  EXPECT_EQ(cold.at(0), 0.5);
  EXPECT_EQ(cold.at(1), 0.5);
  EXPECT_EQ(cold.at(4), 0.25);
}

TEST(Schedule, WarmUpStableDecayHasThreeParts) {
  const Schedule s{
      .kind = ScheduleKind::wsd, .peak = 0.8, .end = 0.2, .warmup_steps = 2, .total_steps = 10, .decay_steps = 3};
  const double wanted[] = {0, 0.4, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8, 0.6, 0.4, 0.2, 0.2};
  for (int64_t i = 0; i < 12; ++i) EXPECT_NEAR(s.at(i), wanted[i], 1e-15) << i;
  // By default a tenth of the run, rounded up.
  const Schedule tenth{.kind = ScheduleKind::wsd, .peak = 1, .total_steps = 95};
  EXPECT_EQ(tenth.at(85), 1);
  EXPECT_NEAR(tenth.at(86), 0.9, 1e-15);
  EXPECT_NEAR(tenth.at(94), 0.1, 1e-15);
  EXPECT_EQ(tenth.at(95), 0);
  // No stable part.
  const Schedule triangle{.kind = ScheduleKind::wsd, .peak = 1, .warmup_steps = 2, .total_steps = 6, .decay_steps = 4};
  EXPECT_EQ(triangle.at(2), 1);
  EXPECT_EQ(triangle.at(3), 0.75);
}

TEST(Schedule, CompiledValueIsTheRoundedDouble) {
  std::vector<int32_t> steps;
  for (int32_t i = 0; i < 120; ++i) steps.push_back(i);
  for (int32_t i = 120; i < 6000; i += 61) steps.push_back(i);
  steps.push_back(std::numeric_limits<int32_t>::max());
  const auto count = static_cast<int64_t>(steps.size());
  for (const Schedule& s : examples()) {
    SCOPED_TRACE(to_string(s.kind));
    const Array rates = jit([&](Array step) { return s(step); })(Array::from(steps, {count}));
    ASSERT_EQ(rates.type(), (Type{f32, {count}}));
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto wanted = static_cast<float>(s.at(steps[i]));
      // The last bit of a double may differ between math libraries, which rarely survives rounding.
      EXPECT_NEAR(rates.data<float>()[i], wanted, 1.2e-7 * wanted) << "step " << steps[i];
    }
  }
}

TEST(Schedule, ScalarStepGivesAScalar) {
  const Array rate = examples()[3](Array(25));
  EXPECT_EQ(rate.type(), (Type{f32, {}}));
  EXPECT_EQ(rate.item<float>(), static_cast<float>(2.5e-4));
}

TEST(Schedule, NamesRoundTrip) {
  for (const char* name :
       {"constant", "cosine", "warmup_cosine", "exponential", "step", "linear", "inverse_sqrt", "wsd"})
    EXPECT_EQ(to_string(schedule_kind(name)), name);
  EXPECT_EQ(schedule_kind("cosine"), ScheduleKind::cosine);
  EXPECT_ERROR(schedule_kind("cosin"),
               "schedule: unknown value \"cosin\"; choose constant, cosine, warmup_cosine, exponential, step, linear, "
               "inverse_sqrt or wsd; did you mean \"cosine\"?");
  EXPECT_ERROR(schedule_kind("polynomial"), "exponential, step, linear, inverse_sqrt or wsd");
}

TEST(Schedule, InvalidValuesAreRejected) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_ERROR(check(Schedule{.peak = -1e-3}), "schedule: the peak rate is -0.001; it must be 0 or a positive number");
  EXPECT_ERROR(check(Schedule{.peak = std::nan("")}), "schedule: the peak rate is nan");
  EXPECT_ERROR(check(Schedule{.peak = inf}), "schedule: the peak rate is inf");
  EXPECT_ERROR(check(Schedule{.end = -1}), "schedule: the end rate is -1");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::cosine}),
               "schedule: total_steps of cosine is 0; set it to the length of the run");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::warmup_cosine, .warmup_steps = 101, .total_steps = 100}),
               "schedule: 101 warm-up steps are more than the 100 steps of the run; shorten the warm-up");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::warmup_cosine, .warmup_steps = -1, .total_steps = 100}),
               "schedule: -1 warm-up steps; the number must not be negative");
  EXPECT_ERROR(
      check(Schedule{.kind = ScheduleKind::cosine, .warmup_steps = 10, .total_steps = 100}),
      "schedule: 10 warm-up steps, but cosine has no warm-up; choose warmup_cosine, linear, inverse_sqrt or wsd, or "
      "set it to 0");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::linear}), "schedule: total_steps of linear is 0");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::linear, .warmup_steps = 11, .total_steps = 10}),
               "schedule: 11 warm-up steps are more than the 10 steps of the run");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::wsd}), "schedule: total_steps of wsd is 0");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::wsd, .warmup_steps = 6, .total_steps = 10, .decay_steps = 5}),
               "schedule: 6 warm-up steps and 5 decay steps are more than the 10 steps of the run; shorten one");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::wsd, .warmup_steps = 10, .total_steps = 10}),
               "schedule: 10 warm-up steps and 1 decay steps are more than the 10 steps of the run");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::wsd, .total_steps = 10, .decay_steps = -1}),
               "schedule: -1 decay steps; the number must not be negative");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::linear, .total_steps = 10, .decay_steps = 2}),
               "schedule: 2 decay steps, but only wsd has them; choose wsd, or set it to 0");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::inverse_sqrt, .warmup_steps = -1}),
               "schedule: -1 warm-up steps; the number must not be negative");
  check(Schedule{.kind = ScheduleKind::inverse_sqrt, .warmup_steps = 10});
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::exponential, .decay = 0}),
               "schedule: the decay is 0; it must be a positive number, such as 0.1");
  EXPECT_ERROR(check(Schedule{.kind = ScheduleKind::step, .every = 0}),
               "schedule: every is 0; give a number of steps of at least 1");
  EXPECT_ERROR(Schedule{}(Array(1.5f)), "schedule: the step is f32[]; steps are integers, use astype(step, i32)");
  EXPECT_ERROR(Schedule{.peak = -1}(Array(0)), "schedule: the peak rate is -1");
  EXPECT_ERROR(Schedule{.peak = -1}.at(0), "schedule: the peak rate is -1");
}

}  // namespace
}  // namespace lockstep
