#include "lockstep/meter.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Phase = Meter::Phase;
using std::chrono::milliseconds;

Meter::Clock::time_point hands;
Meter::Clock::time_point now() { return hands; }
void pass(int64_t ms) { hands += milliseconds(ms); }

void step(Meter& meter, int64_t data_ms, int64_t compute_ms, int64_t communication_ms, int64_t rest_ms = 0) {
  {
    const auto timer = meter.time(Phase::data);
    pass(data_ms);
  }
  {
    const auto timer = meter.time(Phase::compute);
    pass(compute_ms);
  }
  {
    const auto timer = meter.time(Phase::communication);
    pass(communication_ms);
  }
  pass(rest_ms);
  meter.step(100);
}

TEST(Meter, ReportIsEmptyBeforeTheFirstCountedStep) {
  Meter meter(1, now);
  pass(5000);
  meter.step(100);
  const Meter::Report report = meter.report();
  EXPECT_EQ(report.steps, 1);
  EXPECT_EQ(report.step_seconds, 0);
  EXPECT_EQ(report.recent_step_seconds, 0);
  EXPECT_EQ(report.examples_per_second, 0);
  EXPECT_EQ(report.mean_examples_per_second, 0);
  EXPECT_EQ(report.data + report.compute + report.communication, 0);
}

TEST(Meter, WarmupStepsAreExcluded) {
  Meter meter(2, now);
  step(meter, 9000, 9000, 9000);
  step(meter, 9000, 9000, 9000);
  step(meter, 10, 20, 10);
  const Meter::Report report = meter.report();
  EXPECT_EQ(report.steps, 3);
  EXPECT_NEAR(report.step_seconds, 0.040, 1e-9);
  EXPECT_NEAR(report.mean_examples_per_second, 2500, 1e-6);
}

TEST(Meter, SharesAreRelativeToStepTime) {
  Meter meter(0, now);
  for (int i = 0; i < 10; ++i) step(meter, 1, 6, 2, 1);
  const Meter::Report report = meter.report();
  EXPECT_NEAR(report.data, 0.1, 1e-9);
  EXPECT_NEAR(report.compute, 0.6, 1e-9);
  EXPECT_NEAR(report.communication, 0.2, 1e-9);
}

TEST(Meter, RecentRateCoversTheLastStepsAndMeanAllSteps) {
  Meter meter(0, now);
  for (int i = 0; i < 100; ++i) step(meter, 0, 30, 0);
  for (int i = 0; i < 64; ++i) step(meter, 0, 10, 0);
  const Meter::Report report = meter.report();
  EXPECT_NEAR(report.recent_step_seconds, 0.010, 1e-9);
  EXPECT_NEAR(report.examples_per_second, 10000, 1e-3);
  EXPECT_NEAR(report.step_seconds, 3.64 / 164, 1e-9);
  EXPECT_NEAR(report.mean_examples_per_second, 16400 / 3.64, 1e-3);
}

TEST(Meter, StepsReportedTogetherShareTheTimeEqually) {
  Meter meter(1, now);
  pass(9000);
  meter.step(100, 16);  // includes a warm-up step
  EXPECT_EQ(meter.report().steps, 16);
  EXPECT_EQ(meter.report().examples_per_second, 0);
  for (const int64_t ms : {16000, 32000}) {
    pass(ms);
    meter.step(100, 16);
  }
  const Meter::Report report = meter.report();
  EXPECT_EQ(report.steps, 48);
  EXPECT_NEAR(report.step_seconds, 1.5, 1e-9);
  EXPECT_NEAR(report.recent_step_seconds, 1.5, 1e-9);
  EXPECT_NEAR(report.examples_per_second, 100 / 1.5, 1e-6);
  EXPECT_NEAR(report.mean_examples_per_second, 100 / 1.5, 1e-6);
  for (int i = 0; i < 4; ++i) {
    pass(16000);
    meter.step(100, 16);
  }
  EXPECT_NEAR(meter.report().recent_step_seconds, 1, 1e-9);  // over the last 64
}

TEST(Meter, PausesAreExcluded) {
  Meter meter(0, now);
  step(meter, 1, 8, 1);
  meter.pause();
  {
    const auto timer = meter.time(Phase::compute);  // timed within a pause
    pass(5000);
  }
  meter.pause();
  pass(5000);
  meter.resume();
  meter.resume();
  step(meter, 1, 8, 1);
  {
    const auto timer = meter.time(Phase::data);  // a pause within a timed scope
    pass(5);
    meter.pause();
    pass(9000);
    meter.resume();
    pass(5);
  }
  meter.step(100);
  const Meter::Report report = meter.report();
  EXPECT_NEAR(report.step_seconds, 0.010, 1e-9);
  EXPECT_NEAR(report.data, 0.4, 1e-9);
  EXPECT_NEAR(report.compute, 16.0 / 30, 1e-9);
}

TEST(Meter, StepThatEndsInAPauseIsExcludedAndEndsThePause) {
  Meter meter(0, now);
  step(meter, 0, 10, 0);
  meter.pause();
  pass(70);
  meter.step(100);
  step(meter, 0, 10, 0);
  const Meter::Report report = meter.report();
  EXPECT_EQ(report.steps, 3);
  EXPECT_NEAR(report.step_seconds, 0.010, 1e-9);
}

TEST(Meter, StoppedClockGivesRateZero) {
  Meter meter(0, now);
  meter.step(100);
  EXPECT_EQ(meter.report().examples_per_second, 0);
  EXPECT_EQ(meter.report().compute, 0);
}

TEST(Meter, RealClockAdvances) {
  Meter meter(0);
  meter.step(1);
  EXPECT_GE(meter.report().step_seconds, 0);
}

}  // namespace
}  // namespace lockstep
