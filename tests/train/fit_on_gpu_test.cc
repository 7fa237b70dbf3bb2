// A GPU does several steps of a run by itself: they are those that are started one by one.
#include <gtest/gtest.h>

#include "lockstep/devices.h"
#include "lockstep/engine.h"
#include "support/brief.h"

namespace lockstep {
namespace {

struct Said : Logger {
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

struct Ran {
  std::shared_ptr<Said> said = std::make_shared<Said>();
  int64_t asked = 0, steps = 0;
  Cursor cursor;
  std::vector<std::vector<float>> params;
};

struct Wanted {
  int64_t steps = 0, eval_every = 0, stop_at = -1;  // stopped when this step was told of
};

// `watched`: somebody looks at every step, which is then started when the one before is over.
Ran run(bool watched, const Wanted& wanted) {
  Ran out;
  EngineOptions options;
  options.optimizer.kind = Optimizer::Kind::adam;
  options.optimizer.schedule = {.kind = Schedule::Kind::cosine, .peak = 1e-3, .total_steps = wanted.steps};
  options.mesh = make_mesh({{"data", 1}});
  options.loggers = {out.said};
  if (watched) options.hooks.on_step = [](const TrainState&, const StepMetrics&) { return true; };
  Engine engine(find_model("mlp"), options);
  TrainState state = engine.create_state();
  Dataset data = synthetic_digits(650, 50);
  Loader loader(std::move(data.train), {.batch_size = 16, .seed = 5});
  const ImageArrays test = to_arrays(std::move(data.test));
  const auto stop = [&] {
    ++out.asked;
    return wanted.stop_at >= 0 && !out.said->steps.empty() && out.said->steps.back() >= wanted.stop_at;
  };
  engine.fit(state, loader,
             {.steps = wanted.steps,
              .eval_every = wanted.eval_every,
              .test = wanted.eval_every > 0 ? &test : nullptr,
              .eval_batch = 50,
              .stop = stop});
  out.steps = state.step;
  out.cursor = state.cursor;
  for (const Array& each : state.params) out.params.push_back(each.to_vector<float>());
  return out;
}

void expect_same(const Ran& together, const Ran& watched) {
  EXPECT_EQ(together.steps, watched.steps);
  EXPECT_EQ(together.cursor, watched.cursor);
  EXPECT_EQ(together.said->steps, watched.said->steps);
  EXPECT_EQ(together.said->evaluated, watched.said->evaluated);
  EXPECT_EQ(together.said->rows, watched.said->rows);
  EXPECT_EQ(together.said->rates, watched.said->rates);
  EXPECT_EQ(together.said->losses, watched.said->losses);
  EXPECT_EQ(together.said->norms, watched.said->norms);
  EXPECT_EQ(together.params, watched.params);
}

TEST(FitOnGpu, StepsThatAreStartedTogetherAreTheSame) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  const int64_t steps = brief(37, 18);
  const Ran together = run(false, {.steps = steps}), watched = run(true, {.steps = steps});
  EXPECT_LT(together.asked, steps + 15) << "each was started by itself";
  EXPECT_EQ(std::ssize(together.said->losses), steps);
  expect_same(together, watched);
}

// 40 batches and a smaller one are an epoch.
TEST(FitOnGpu, NobodyMissesAnEvaluationOrTheEndOfAnEpoch) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  const Wanted wanted{.steps = brief(43, 18), .eval_every = brief(19, 17)};
  const Ran together = run(false, wanted);
  EXPECT_LT(together.asked, 2 * wanted.steps - 10) << "each was started by itself";
  expect_same(together, run(true, wanted));
}

TEST(FitOnGpu, StopIsHeardBetweenThem) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  const Ran stopped = run(false, {.steps = 100, .stop_at = 3});
  EXPECT_EQ(stopped.steps, 32);  // told of the first 16 when it has been given the next
  EXPECT_EQ(stopped.said->steps.size(), 32u);
  EXPECT_EQ(stopped.cursor.sample, 32 * 16);
}

}  // namespace
}  // namespace lockstep
