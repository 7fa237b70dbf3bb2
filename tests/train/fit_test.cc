// How runs end: evaluation, the last checkpoint, and what is reported.
#include <gtest/gtest.h>

#include <limits>

#include "base/faulty_files.h"
#include "lockstep/engine.h"

namespace lockstep {
namespace {

class Fit : public ::testing::Test {
 protected:
  Fit() { options_.checkpoint_every = 2; }
  FitResult fit(int64_t steps, std::function<bool()> stop = {}) {
    options_.checkpoint_dir = dir_.path();
    options_.keep_last = 0;
    options_.files = &files_;
    Engine engine(find_model("mlp"), options_);
    TrainState state = engine.create_state();
    Dataset data = synthetic_digits(200, 20);
    Loader loader(std::move(data.train), {.batch_size = 50});
    const SourcePtr test = image_source(std::move(data.test));
    FitResult result = engine.fit(state, loader, {.steps = steps, .test = test, .stop = std::move(stop)});
    step_ = state.step;
    return result;
  }

  const TempDir dir_;
  FaultyFiles files_;
  EngineOptions options_;
  int64_t step_ = 0;
};

using Steps = std::vector<int64_t>;

bool has_test_accuracy(const FitResult& result) {
  for (const auto& [name, value] : result.metrics)
    if (name == "test_accuracy") return true;
  return false;
}

TEST_F(Fit, FailedIntermediateSaveIsReportedAndTheLastStateIsSaved) {
  files_.fail_at("rename", 1, ENOSPC);
  const FitResult result = fit(5);
  EXPECT_FALSE(result.unsaved);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_NE(result.failures[0].find("checkpoint of step 2 was not saved: "), std::string::npos) << result.failures[0];
  EXPECT_EQ(list_checkpoints(dir_.path()), (Steps{4, 5}));
}

TEST_F(Fit, FailedLastSaveIsReportedAsUnsaved) {
  files_.fail("rename", ENOSPC);
  const FitResult result = fit(4);
  EXPECT_TRUE(result.unsaved);
  EXPECT_EQ(result.failures.size(), 2u);
  EXPECT_TRUE(has_test_accuracy(result));
}

TEST_F(Fit, StopSavesWithoutEvaluation) {
  int polls = 0;
  const FitResult result = fit(100, [&] { return ++polls > 3; });
  EXPECT_TRUE(result.stopped);
  EXPECT_TRUE(result.ended_early);
  EXPECT_FALSE(result.unsaved);
  EXPECT_FALSE(has_test_accuracy(result));
  EXPECT_EQ(list_checkpoints(dir_.path()), (Steps{2, 3}));
}

TEST_F(Fit, StopAfterTheLastStepHasNoEffect) {
  int polls = 0;
  const FitResult result = fit(3, [&] { return ++polls > 3; });  // polled before the run and after each step
  EXPECT_FALSE(result.stopped);
  EXPECT_TRUE(has_test_accuracy(result));
  EXPECT_EQ(step_, 3);
}

TEST_F(Fit, StopBeforeTheFirstStepSavesNothing) {
  const FitResult result = fit(3, [] { return true; });
  EXPECT_TRUE(result.stopped);
  EXPECT_FALSE(result.unsaved);
  EXPECT_EQ(step_, 0);
  EXPECT_TRUE(list_checkpoints(dir_.path()).empty());
}

TEST_F(Fit, SavesFollowEveryEvaluationWithoutAnInterval) {
  options_.checkpoint_every = 0;
  fit(9);
  EXPECT_EQ(list_checkpoints(dir_.path()), (Steps{4, 8, 9}));
}

TEST_F(Fit, EvaluationsWithinTheIntervalAreNotSaved) {
  options_.checkpoint_every = 0;
  options_.checkpoint_seconds = std::numeric_limits<int64_t>::max();
  const FitResult result = fit(9);
  EXPECT_FALSE(result.unsaved);
  EXPECT_EQ(list_checkpoints(dir_.path()), (Steps{9}));
}

TEST_F(Fit, StateAfterAFatalAlarmIsNotSaved) {
  options_.optimizer.schedule.peak = 1e30;
  options_.strict = true;
  const FitResult result = fit(50);
  EXPECT_TRUE(result.ended_by_alarm);
  EXPECT_FALSE(result.unsaved);
  EXPECT_FALSE(has_test_accuracy(result));
  EXPECT_EQ(step_, 2);
  EXPECT_TRUE(list_checkpoints(dir_.path()).empty());
}

}  // namespace
}  // namespace lockstep
