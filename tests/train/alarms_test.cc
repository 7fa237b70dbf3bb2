#include "lockstep/alarms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "support/long_tests.h"

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
const std::vector<std::string> kPaths = {"dense/0/w", "dense/0/b", "dense/1/w", "dense/1/b"};

Alarms alarms(int64_t steps = 1000) { return Alarms({.total_steps = steps, .paths = kPaths}); }

#define EXPECT_RAISES(result, part)                                           \
  do {                                                                        \
    const std::optional<std::string> alarm_ = result;                         \
    ASSERT_TRUE(alarm_.has_value());                                          \
    EXPECT_NE(alarm_->find(part), std::string::npos) << "alarm: " << *alarm_; \
  } while (false)

TEST(Alarms, NanLossNamesTheFirstParameter) {
  Alarms a = alarms();
  EXPECT_FALSE(a.check(StepFacts{.step = 11, .loss = 2.3, .grad_norms = {1, 1, 1, 1}}));
  EXPECT_RAISES(a.check(StepFacts{.step = 12, .loss = kNan, .grad_norms = {1, 0.5, kInf, kNan}}),
                "loss is nan at step 12; the first parameter without a finite gradient is dense/1/w; lower "
                "--learning-rate");
}

TEST(Alarms, GradientsThatAreNotFiniteRaise) {
  Alarms a = alarms();
  EXPECT_RAISES(a.check(StepFacts{.step = 7, .loss = 2.25, .grad_norms = {1, kInf, 1, 1}}),
                "the gradients are not finite at step 7 (loss 2.25); the first affected parameter is dense/0/b; lower");
}

TEST(Alarms, InfiniteLossWithFiniteGradientsRaises) {
  Alarms a = alarms(), b = alarms();
  EXPECT_RAISES(a.check(StepFacts{.step = 3, .loss = kInf, .grad_norms = {1, 1, 1, 1}}),
                "loss is inf at step 3, but all gradients are finite; lower --learning-rate");
  EXPECT_RAISES(b.check(StepFacts{.step = 3, .loss = -kInf}), "loss is -inf at step 3; lower --learning-rate");
}

TEST(Alarms, ParameterWithoutAPathIsNumbered) {
  Alarms a({.total_steps = 100});
  EXPECT_RAISES(a.check(StepFacts{.step = 1, .loss = 1, .grad_norms = {1, 1, kNan}}), "parameter is number 2;");
}

TEST(Alarms, EachIsRaisedOnceAndRemembered) {
  Alarms a = alarms();
  EXPECT_TRUE(a.raised().empty());
  const auto first = a.check(StepFacts{.step = 1, .loss = kNan});
  for (int step = 2; step < 400; ++step) EXPECT_FALSE(a.check(StepFacts{.step = step, .loss = kNan}));
  EXPECT_EQ(a.raised(), std::vector<std::string>{*first});
}

TEST(Alarms, TwentyConsecutiveSkippedStepsRaise) {
  Alarms a = alarms();
  int raised = 0;
  const auto skip = [&](int64_t step) {
    return a.check(StepFacts{.step = step, .loss = 2.5, .grad_norms = {kInf}, .skipped = true});
  };
  for (int64_t step = 1; step <= 19; ++step) raised += skip(step).has_value();
  a.check(StepFacts{.step = 20, .loss = 2.5, .grad_norms = {1}});
  for (int64_t step = 21; step <= 39; ++step) raised += skip(step).has_value();
  EXPECT_EQ(raised, 0);
  EXPECT_RAISES(skip(40), "20 consecutive steps were skipped up to step 40 (loss 2.5): the gradients overflow");
  for (int64_t step = 41; step <= 90; ++step) raised += skip(step).has_value();
  EXPECT_EQ(raised, 0);
}

// The sum of twelve uniform values is nearly normal, and the same with every standard library.
class Noise {
 public:
  explicit Noise(uint32_t seed) : bits_(seed) {}
  double uniform() { return static_cast<double>(bits_()) / 4294967296.0; }
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }

 private:
  std::mt19937 bits_;
};

using Curve = std::function<double(int64_t step, Noise&)>;

// The step at which the "loss does not fall" alarm was raised; 0: never.
int64_t alarm_step(int64_t steps, uint32_t seed, const Curve& curve) {
  Alarms a = alarms(steps);
  Noise noise(seed);
  const int64_t half = std::max<int64_t>(steps / 2, 60);  // the alarm is not raised later than this
  for (int64_t step = 1; step <= std::min(steps, half); ++step)
    if (a.check(StepFacts{.step = step, .loss = curve(step, noise)})) return step;
  return 0;
}

// The number of runs, of this many, in which an alarm is raised.
int64_t count_alarms(int64_t steps, const Curve& curve, uint32_t runs = 1000) {
  int64_t raised = 0;
  for (uint32_t seed = 0; seed < runs; ++seed) raised += alarm_step(steps, seed, curve) != 0;
  return raised;
}

// A loss curve over `steps` steps that falls from 2.3 to 0.1 with a time constant of `pace` tenths of the run.
Curve falling(int64_t steps, double pace, double relative_noise, double spikes = 0) {
  return [=](int64_t step, Noise& noise) {
    const double mean = 0.1 + 2.2 * std::exp(-static_cast<double>(step) / (pace * static_cast<double>(steps) / 10));
    const double spike = noise.uniform() < spikes ? 10 : 1;
    return std::max(0.01, spike * mean * (1 + relative_noise * noise.normal()));
  };
}

TEST(Alarms, HealthyRunsDoNotRaise) {
  const uint32_t runs = long_tests() ? 1000 : 200;
  for (const int64_t steps : {200, 469, 4690}) {
    EXPECT_EQ(count_alarms(steps, falling(steps, 0.5, 0.0), runs), 0) << steps;
    EXPECT_EQ(count_alarms(steps, falling(steps, 0.5, 0.1), runs), 0) << steps;
    EXPECT_EQ(count_alarms(steps, falling(steps, 0.5, 0.3), runs), 0) << steps << " very noisy";
    EXPECT_EQ(count_alarms(steps, falling(steps, 0.5, 0.1, 0.03), runs), 0) << steps << " with exploding batches";
    EXPECT_EQ(count_alarms(steps, falling(steps, 3, 0.03), runs), 0) << steps << " slow";
  }
  // A warm-up over a tenth of the run, in which the loss falls by only 5 %.
  EXPECT_EQ(count_alarms(
                4690,
                [](int64_t step, Noise& noise) {
                  const double warm = std::min(1.0, static_cast<double>(step) / 469);
                  return 2.3 * (1 - 0.05 * warm * warm) * (1 + 0.05 * noise.normal());
                },
                runs),
            0);
}

TEST(Alarms, RunsBelowTwentyStepsAreNotJudged) {
  EXPECT_EQ(count_alarms(19, [](int64_t, Noise&) { return 2.3; }), 0);
  EXPECT_EQ(alarm_step(20, 0, [](int64_t, Noise&) { return 2.3; }), 20);
  EXPECT_EQ(count_alarms(20, falling(20, 3, 0.03)), 0);
}

TEST(Alarms, FlatLossRaises) {
  EXPECT_EQ(alarm_step(4690, 0, [](int64_t, Noise&) { return 2.302585; }), 469);
  const Curve noisy = [](int64_t, Noise& noise) { return 2.3 + 0.05 * noise.normal(); };
  for (const int64_t steps : {200, 1000, 4690}) EXPECT_GE(count_alarms(steps, noisy), 950) << steps;
  EXPECT_GE(count_alarms(25, noisy), 800);  // 25 losses are not always conclusive
}

TEST(Alarms, RisingLossRaisesAfterATenthOfTheRun) {
  const Curve rising = [](int64_t step, Noise& noise) {
    return 2.3 + 0.01 * static_cast<double>(step) + 0.05 * noise.normal();
  };
  EXPECT_EQ(count_alarms(1000, rising), 1000);
  EXPECT_EQ(alarm_step(1000, 1, rising), 100);
}

TEST(Alarms, FlatLossIsReportedWithBothMeans) {
  Alarms a = alarms(100);
  std::optional<std::string> alarm;
  for (int64_t step = 1; step <= 20; ++step) alarm = a.check(StepFacts{.step = step, .loss = 2.5});
  EXPECT_RAISES(
      alarm,
      "the loss does not fall: its mean is 2.5 over the first 5 steps and 2.5 over the 15 steps up to step 20; "
      "try --learning-rate ten times lower");
}

TEST(Alarms, ResumedRunMayHaveConverged) {
  Alarms a = alarms(1000);
  for (int64_t step = 501; step <= 1000; ++step) EXPECT_FALSE(a.check(StepFacts{.step = step, .loss = 0.01}));
}

TEST(Alarms, StepsSkippedAtTheStartDoNotDisableTheCheck) {
  Alarms a = alarms(1000);
  int raised = 0;
  for (int64_t step = 1; step <= 5; ++step) a.check(StepFacts{.step = step, .loss = kInf, .skipped = true});
  for (int64_t step = 6; step <= 150; ++step) raised += a.check(StepFacts{.step = step, .loss = 2.3}).has_value();
  EXPECT_EQ(raised, 1);
}

TEST(Alarms, PredictingOneClassRaises) {
  const std::vector<int64_t> labels = {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009};
  std::vector<int64_t> predictions(10);
  predictions[0] = 10000;
  Alarms a = alarms(938);
  const EvalFacts facts{.step = 938, .accuracy = 0.098, .predictions = predictions};
  EXPECT_RAISES(
      a.check(facts, labels),
      "the model predicts class 0 for all 10000 test examples at step 938 (accuracy 0.0980): it ignores its input; "
      "lower --learning-rate");
  EXPECT_FALSE(a.check(facts, labels));
  EXPECT_EQ(a.raised().size(), 1u);
}

TEST(Alarms, AccuracyAtChanceRaises) {
  const std::vector<int64_t> labels(10, 1000), predictions = {4000, 6000, 0, 0, 0, 0, 0, 0, 0, 0};
  Alarms a = alarms(1000);
  const auto at = [&](double accuracy) {
    return a.check(EvalFacts{.step = 100, .accuracy = accuracy, .predictions = predictions}, labels);
  };
  EXPECT_FALSE(at(0.1091));
  EXPECT_RAISES(
      at(0.1089),
      "test accuracy 0.1089 at step 100 is no better than chance: always predicting class 0 gives 0.1000, and with "
      "10000 examples only more than 0.1090 is significant; try another --learning-rate");
  EXPECT_FALSE(at(0.1));
}

TEST(Alarms, EvaluationsAreJudgedFromATenthOfTheRunOnAndAtItsEnd) {
  const std::vector<int64_t> labels(10, 1000), one = {10000, 0};
  Alarms early = alarms(1000), brief = alarms(5);
  EXPECT_FALSE(early.check(EvalFacts{.step = 99, .accuracy = 0.1, .predictions = one}, labels));
  EXPECT_TRUE(early.check(EvalFacts{.step = 100, .accuracy = 0.1, .predictions = one}, labels));
  EXPECT_FALSE(brief.check(EvalFacts{.step = 4, .accuracy = 0.1, .predictions = one}, labels));
  EXPECT_TRUE(brief.check(EvalFacts{.step = 5, .accuracy = 0.1, .predictions = one}, labels));
}

TEST(Alarms, TestSetsThatAreTooSmallOrOneSidedAreNotJudged) {
  Alarms a = alarms(100);
  // One class only; few examples; nearly all of one class, so that even 1.0 is within three standard deviations.
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 1, .predictions = {100, 0}}, {100, 0}));
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 0.5, .predictions = {5, 5}}, {5, 5}));
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 1, .predictions = {95, 5}}, {95, 5}));
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 0, .predictions = {}}, {}));
  EXPECT_TRUE(a.check(EvalFacts{.step = 100, .accuracy = 0.5, .predictions = {50, 50}}, {50, 50}));
}

}  // namespace
}  // namespace lockstep
