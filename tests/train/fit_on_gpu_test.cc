// On a GPU several steps may run in one launch. The results are those of steps launched one by one.
#include <gtest/gtest.h>

#include "lockstep/devices.h"
#include "lockstep/engine.h"
#include "support/brief.h"

namespace lockstep {
namespace {

struct RecordingLogger : Logger {
  std::vector<int64_t> steps;
  std::vector<double> losses, norms, rates;
  std::vector<int64_t> rows, evaluated;

  void batch(const LoaderBatch& batch) override {
    const std::vector<int64_t> own = batch.rows.to_vector<int64_t>();
    rows.insert(rows.end(), own.begin(), own.end());
  }
  void evaluation(int64_t step, const Scalars&) override { evaluated.push_back(step); }
  void step(int64_t step, const Scalars& scalars) override {
    steps.push_back(step);
    for (const auto& [name, value] : scalars) {
      if (name == "loss") losses.push_back(value);
      if (name == "grad_norm") norms.push_back(value);
      if (name == "learning_rate") rates.push_back(value);
    }
  }
};

struct RunRecord {
  std::shared_ptr<RecordingLogger> log = std::make_shared<RecordingLogger>();
  int64_t polls = 0;  // calls of FitOptions::stop
  int64_t steps = 0;
  Cursor cursor;
  std::vector<std::vector<float>> params;
};

struct RunSettings {
  int64_t steps = 0, eval_every = 0;
  int64_t stop_at = -1;  // stop when this step was logged
};

// `one_by_one`: a hook inspects every step, so each step is launched after the previous one has finished.
RunRecord run(bool one_by_one, const RunSettings& settings) {
  RunRecord out;
  EngineOptions options;
  options.optimizer.kind = Optimizer::Kind::adam;
  options.optimizer.schedule = {.kind = Schedule::Kind::cosine, .peak = 1e-3, .total_steps = settings.steps};
  options.mesh = make_mesh({{"data", 1}});
  options.loggers = {out.log};
  if (one_by_one) options.hooks.on_step = [](const TrainState&, const StepMetrics&) { return true; };
  Engine engine(find_model("mlp"), options);
  TrainState state = engine.create_state();
  Dataset data = synthetic_digits(650, 50);
  Loader loader(std::move(data.train), {.batch_size = 16, .seed = 5});
  const SourcePtr test = image_source(std::move(data.test));
  const auto stop = [&] {
    ++out.polls;
    return settings.stop_at >= 0 && !out.log->steps.empty() && out.log->steps.back() >= settings.stop_at;
  };
  engine.fit(state, loader,
             {.steps = settings.steps,
              .eval_every = settings.eval_every,
              .test = settings.eval_every > 0 ? test : nullptr,
              .eval_batch = 50,
              .stop = stop});
  out.steps = state.step;
  out.cursor = state.cursor;
  for (const Array& each : state.params) out.params.push_back(each.to_vector<float>());
  return out;
}

void expect_same(const RunRecord& together, const RunRecord& one_by_one) {
  EXPECT_EQ(together.steps, one_by_one.steps);
  EXPECT_EQ(together.cursor, one_by_one.cursor);
  EXPECT_EQ(together.log->steps, one_by_one.log->steps);
  EXPECT_EQ(together.log->evaluated, one_by_one.log->evaluated);
  EXPECT_EQ(together.log->rows, one_by_one.log->rows);
  EXPECT_EQ(together.log->rates, one_by_one.log->rates);
  EXPECT_EQ(together.log->losses, one_by_one.log->losses);
  EXPECT_EQ(together.log->norms, one_by_one.log->norms);
  EXPECT_EQ(together.params, one_by_one.params);
}

TEST(FitOnGpu, StepsInOneLaunchGiveTheSameResults) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  const int64_t steps = brief(37, 18);
  const RunRecord together = run(false, {.steps = steps}), one_by_one = run(true, {.steps = steps});
  EXPECT_LT(together.polls, steps + 15) << "each step was launched separately";
  EXPECT_EQ(std::ssize(together.log->losses), steps);
  expect_same(together, one_by_one);
}

// An epoch has 40 full batches and a smaller one.
TEST(FitOnGpu, EvaluationsAndEndsOfEpochsAreNotSkipped) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  const RunSettings settings{.steps = brief(43, 18), .eval_every = brief(19, 17)};
  const RunRecord together = run(false, settings);
  EXPECT_LT(together.polls, 2 * settings.steps - 10) << "each step was launched separately";
  expect_same(together, run(true, settings));
}

TEST(FitOnGpu, StopIsPolledBetweenLaunches) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  const RunRecord stopped = run(false, {.steps = 100, .stop_at = 3});
  EXPECT_EQ(stopped.steps, 32);  // the first 16 steps are logged after the next 16 were launched
  EXPECT_EQ(stopped.log->steps.size(), 32u);
  EXPECT_EQ(stopped.cursor.sample, 32 * 16);
}

TEST(FitOnGpu, ScheduleOfSeveralStepsIsOneRepeatedKernel) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  Engine engine(find_model("mlp"), {.mesh = make_mesh({{"data", 1}})});
  const Loader loader(synthetic_digits(650, 50).train, {.batch_size = 16});
  const std::string text = engine.schedule(engine.create_state(), loader);
  EXPECT_TRUE(text.starts_with("a step of 16 examples:\nschedule(")) << text;
  const size_t several = text.find("\n16 steps in one call:\nschedule(");
  ASSERT_NE(several, text.npos) << text;
  for (const char* part : {" = scan[", "\n    body {\n      repeated kernel(", "\n        phase {\n", "(ready, tile="})
    EXPECT_NE(text.find(part, several), text.npos) << part << " in\n" << text;
}

}  // namespace
}  // namespace lockstep
