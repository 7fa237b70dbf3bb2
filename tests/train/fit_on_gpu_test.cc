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
  int64_t batches = 0;

  void batch(const LoaderBatch&) override { ++batches; }
  void evaluation(int64_t, const Scalars&) override {}
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
  int64_t asked = 0;
  Cursor cursor;
  std::vector<float> bias;
};

const int64_t kSteps = brief(37, 18);

// `watched`: somebody looks at every step, which is then started when the one before is over.
Ran run(bool watched) {
  Ran out;
  EngineOptions options;
  options.optimizer.kind = Optimizer::Kind::adam;
  options.optimizer.schedule = {.kind = Schedule::Kind::cosine, .peak = 1e-3, .total_steps = kSteps};
  options.mesh = make_mesh({{"data", 1}});
  options.loggers = {out.said};
  if (watched) options.hooks.on_step = [](const TrainState&, const StepMetrics&) { return true; };
  Engine engine(find_model("mlp"), options);
  TrainState state = engine.create_state();
  Loader loader(synthetic_digits(650, 8).train, {.batch_size = 16, .seed = 5});
  const auto stop = [&] {
    ++out.asked;
    return false;
  };
  engine.fit(state, loader, {.steps = kSteps, .stop = stop});
  out.cursor = state.cursor;
  out.bias = state.params.back().to_vector<float>();
  return out;
}

TEST(FitOnGpu, StepsThatAreStartedTogetherAreTheSame) {
  if (platform() != Platform::cuda) GTEST_SKIP() << "computes on the CPU";
  ::setenv("LOCKSTEP_CUDA_MATH", "tf32", 1);
  const Ran together = run(false), watched = run(true);
  EXPECT_LT(together.asked, kSteps + 10) << "each was started by itself";
  EXPECT_EQ(together.said->steps, watched.said->steps);
  EXPECT_EQ(together.said->batches, kSteps);
  EXPECT_EQ(together.said->rates, watched.said->rates);
  EXPECT_EQ(together.cursor, watched.cursor);
  ASSERT_EQ(std::ssize(together.said->losses), kSteps);
  ASSERT_EQ(std::ssize(watched.said->losses), kSteps);
  for (size_t i = 0; i < together.said->losses.size(); ++i) {
    EXPECT_NEAR(together.said->losses[i] / watched.said->losses[i], 1, 1e-4) << "step " << i;
    EXPECT_NEAR(together.said->norms[i] / watched.said->norms[i], 1, 1e-3) << "step " << i;
  }
  for (size_t i = 0; i < together.bias.size(); ++i) EXPECT_NEAR(together.bias[i], watched.bias[i], 1e-5);
}

}  // namespace
}  // namespace lockstep
