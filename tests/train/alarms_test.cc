#include "lockstep/alarms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
const std::vector<std::string> kPaths = {"dense/0/w", "dense/0/b", "dense/1/w", "dense/1/b"};

Alarms alarms(int64_t steps = 1000) { return Alarms({.total_steps = steps, .classes = 10, .paths = kPaths}); }

#define EXPECT_SAYS(result, part)                                          \
  do {                                                                     \
    const std::optional<std::string> said_ = result;                       \
    ASSERT_TRUE(said_.has_value());                                        \
    EXPECT_NE(said_->find(part), std::string::npos) << "said: " << *said_; \
  } while (false)

TEST(Alarms, LossThatIsNoNumberNamesTheFirstLayer) {
  Alarms a = alarms();
  EXPECT_FALSE(a.check(StepFacts{.step = 11, .loss = 2.3, .grad_norms = {1, 1, 1, 1}}));
  EXPECT_SAYS(a.check(StepFacts{.step = 12, .loss = kNan, .grad_norms = {1, 0.5, kInf, kNan}}),
              "loss is nan at step 12; the first parameter without a finite gradient is dense/1/w; lower "
              "--learning-rate");
}

TEST(Alarms, GradientsAloneAreTold) {
  Alarms a = alarms();
  EXPECT_SAYS(a.check(StepFacts{.step = 7, .loss = 2.25, .grad_norms = {1, kInf, 1, 1}}),
              "the gradients are not finite at step 7 (loss 2.25); the first such parameter is dense/0/b; lower");
}

TEST(Alarms, LossAloneIsTold) {
  Alarms a = alarms(), b = alarms();
  EXPECT_SAYS(a.check(StepFacts{.step = 3, .loss = kInf, .grad_norms = {1, 1, 1, 1}}),
              "loss is inf at step 3, while all gradients are finite; lower --learning-rate");
  EXPECT_SAYS(b.check(StepFacts{.step = 3, .loss = -kInf}), "loss is -inf at step 3; lower --learning-rate");
}

TEST(Alarms, ParameterWithoutAPathIsNumbered) {
  Alarms a({.total_steps = 100});
  EXPECT_SAYS(a.check(StepFacts{.step = 1, .loss = 1, .grad_norms = {1, 1, kNan}}), "parameter is number 2;");
}

TEST(Alarms, EachIsToldOnceAndKept) {
  Alarms a = alarms();
  EXPECT_TRUE(a.said().empty());
  const auto first = a.check(StepFacts{.step = 1, .loss = kNan});
  for (int step = 2; step < 400; ++step) EXPECT_FALSE(a.check(StepFacts{.step = step, .loss = kNan}));
  EXPECT_EQ(a.said(), std::vector<std::string>{*first});
}

TEST(Alarms, SkippedStepsAreToldAfterTwentyInARow) {
  Alarms a = alarms();
  int told = 0;
  const auto skip = [&](int64_t step) {
    return a.check(StepFacts{.step = step, .loss = 2.5, .grad_norms = {kInf}, .skipped = true});
  };
  for (int64_t step = 1; step <= 19; ++step) told += skip(step).has_value();
  a.check(StepFacts{.step = 20, .loss = 2.5, .grad_norms = {1}});
  for (int64_t step = 21; step <= 39; ++step) told += skip(step).has_value();
  EXPECT_EQ(told, 0);
  EXPECT_SAYS(skip(40), "20 steps in a row were skipped at step 40 (loss 2.5): the gradients overflow");
  for (int64_t step = 41; step <= 90; ++step) told += skip(step).has_value();
  EXPECT_EQ(told, 0);
}

// A sum of twelve uniform values is nearly normal and the same with every library.
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

// The step at which the run was said not to learn, 0: never.
int64_t told_at(int64_t steps, uint32_t seed, const Curve& curve) {
  Alarms a = alarms(steps);
  Noise noise(seed);
  const int64_t half = std::max<int64_t>(steps / 2, 60);  // what has not been told by then is told no more
  for (int64_t step = 1; step <= std::min(steps, half); ++step)
    if (a.check(StepFacts{.step = step, .loss = curve(step, noise)})) return step;
  return 0;
}

int64_t times_told(int64_t steps, const Curve& curve) {
  int64_t told = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) told += told_at(steps, seed, curve) != 0;
  return told;
}

// The curve of a run of so many steps that falls from 2.3 to 0.1 with the given pace in tenths of the run.
Curve falling(int64_t steps, double pace, double relative_noise, double spikes = 0) {
  return [=](int64_t step, Noise& noise) {
    const double mean = 0.1 + 2.2 * std::exp(-static_cast<double>(step) / (pace * static_cast<double>(steps) / 10));
    const double spike = noise.uniform() < spikes ? 10 : 1;
    return std::max(0.01, spike * mean * (1 + relative_noise * noise.normal()));
  };
}

TEST(Alarms, HealthyRunIsNeverBlamed) {
  for (const int64_t steps : {200, 469, 4690}) {
    EXPECT_EQ(times_told(steps, falling(steps, 0.5, 0.0)), 0) << steps;
    EXPECT_EQ(times_told(steps, falling(steps, 0.5, 0.1)), 0) << steps;
    EXPECT_EQ(times_told(steps, falling(steps, 0.5, 0.3)), 0) << steps << " very noisy";
    EXPECT_EQ(times_told(steps, falling(steps, 0.5, 0.1, 0.03)), 0) << steps << " with batches that explode";
    EXPECT_EQ(times_told(steps, falling(steps, 3, 0.03)), 0) << steps << " slow";
  }
  // A warm-up of a tenth of the run, in which the loss falls by one part in twenty.
  EXPECT_EQ(times_told(4690,
                       [](int64_t step, Noise& noise) {
                         const double warm = std::min(1.0, static_cast<double>(step) / 469);
                         return 2.3 * (1 - 0.05 * warm * warm) * (1 + 0.05 * noise.normal());
                       }),
            0);
}

TEST(Alarms, ShortRunIsJudgedOnlyWhenItIsLongEnough) {
  EXPECT_EQ(times_told(19, [](int64_t, Noise&) { return 2.3; }), 0);
  EXPECT_EQ(told_at(20, 0, [](int64_t, Noise&) { return 2.3; }), 20);
  EXPECT_EQ(times_told(20, falling(20, 3, 0.03)), 0);
}

TEST(Alarms, FlatRunIsBlamed) {
  EXPECT_EQ(told_at(4690, 0, [](int64_t, Noise&) { return 2.302585; }), 469);
  const Curve noisy = [](int64_t, Noise& noise) { return 2.3 + 0.05 * noise.normal(); };
  for (const int64_t steps : {200, 1000, 4690}) EXPECT_GE(times_told(steps, noisy), 950) << steps;
  EXPECT_GE(times_told(25, noisy), 800);  // 25 losses do not always tell
}

TEST(Alarms, RisingRunIsBlamedAtATenth) {
  const Curve rising = [](int64_t step, Noise& noise) {
    return 2.3 + 0.01 * static_cast<double>(step) + 0.05 * noise.normal();
  };
  EXPECT_EQ(times_told(1000, rising), 1000);
  EXPECT_EQ(told_at(1000, 1, rising), 100);
}

TEST(Alarms, FlatLossIsToldWithBothMeans) {
  Alarms a = alarms(100);
  std::optional<std::string> said;
  for (int64_t step = 1; step <= 20; ++step) said = a.check(StepFacts{.step = step, .loss = 2.5});
  EXPECT_SAYS(said,
              "the loss does not fall: its mean over the first 5 steps is 2.5 and over the last 15 up to step 20 it "
              "is 2.5; try --learning-rate ten times lower");
}

TEST(Alarms, ResumedRunMayHaveLearnedAllThereIs) {
  Alarms a = alarms(1000);
  for (int64_t step = 501; step <= 1000; ++step) EXPECT_FALSE(a.check(StepFacts{.step = step, .loss = 0.01}));
}

TEST(Alarms, StepsSkippedAtTheStartDoNotEndTheWatch) {
  Alarms a = alarms(1000);
  int told = 0;
  for (int64_t step = 1; step <= 5; ++step) a.check(StepFacts{.step = step, .loss = kInf, .skipped = true});
  for (int64_t step = 6; step <= 150; ++step) told += a.check(StepFacts{.step = step, .loss = 2.3}).has_value();
  EXPECT_EQ(told, 1);
}

TEST(Alarms, EveryImageCalledZero) {
  const std::vector<int64_t> labels = {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009};
  std::vector<int64_t> predictions(10);
  predictions[0] = 10000;
  Alarms a = alarms(938);
  const EvalFacts facts{.step = 938, .accuracy = 0.098, .predictions = predictions};
  EXPECT_SAYS(
      a.check(facts, labels),
      "all 10000 test examples are called class 0 at step 938 (accuracy 0.0980): the model does not look at its "
      "input; lower --learning-rate");
  EXPECT_FALSE(a.check(facts, labels));
  EXPECT_EQ(a.said().size(), 1u);
}

TEST(Alarms, AccuracyAtChanceIsTold) {
  const std::vector<int64_t> labels(10, 1000), predictions = {4000, 6000, 0, 0, 0, 0, 0, 0, 0, 0};
  Alarms a = alarms(1000);
  const auto at = [&](double accuracy) {
    return a.check(EvalFacts{.step = 100, .accuracy = accuracy, .predictions = predictions}, labels);
  };
  EXPECT_FALSE(at(0.1091));
  EXPECT_SAYS(
      at(0.1089),
      "test accuracy 0.1089 at step 100 is no better than chance: always answering class 0 gives 0.1000, and of "
      "10000 examples only more than 0.1090 would say something; try another --learning-rate");
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

TEST(Alarms, TestSetsThatCannotTellAreNotJudged) {
  Alarms a = alarms(100);
  // One class only; few examples; nearly all of one class, where even 1.0 is within three standard deviations.
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 1, .predictions = {100, 0}}, {100, 0}));
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 0.5, .predictions = {5, 5}}, {5, 5}));
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 1, .predictions = {95, 5}}, {95, 5}));
  EXPECT_FALSE(a.check(EvalFacts{.step = 100, .accuracy = 0, .predictions = {}}, {}));
  EXPECT_TRUE(a.check(EvalFacts{.step = 100, .accuracy = 0.5, .predictions = {50, 50}}, {50, 50}));
}

}  // namespace
}  // namespace lockstep
