// Training with precision float8: the history of largest values is a part of the state that does not depend on
// micro-batches, interruptions, rematerialization or devices, and losses are those of bfloat16.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include <cmath>

#include "base/file.h"
#include "base/throws.h"
#include "lockstep/gpt.h"
#include "lockstep/quantize.h"
#include "train/config.h"
#include "train/eight_devices.h"
#include "train/state.h"

namespace lockstep {
namespace {

struct LinearNet {
  nn::Linear hidden, out;
};
Model linear_model() {
  return make_model(
      "linear",
      [](const Array& key) {
        return LinearNet{nn::linear(key, 784, 16), nn::linear(random::fold_in(key, 1), 16, 10)};
      },
      [](const LinearNet& net, const Array& x, const nn::Mode& mode) {
        const auto block = [&](const LinearNet& weights, const Array& in) {
          return nn::apply(weights.out, relu(nn::apply(weights.hidden, in, mode)), mode);
        };
        const Array in = nn::flatten(x);
        return mode.remat && mode.training ? remat(block)(net, in) : block(net, in);
      });
}

EngineOptions float8_options(const char* precision = "float8") {
  return {.optimizer = {.schedule = {.peak = 1e-2}}, .precision = precision_of(precision), .seed = 5};
}

struct TrainedRun {
  std::vector<double> losses;
  TrainState state;

  std::vector<float> history() const { return state.float8.largest.at(0).to_vector<float>(); }
};
TrainedRun run_of(EngineOptions with, int64_t steps = 5) {
  TrainedRun out;
  Engine engine(linear_model(), std::move(with));
  out.state = engine.create_state();
  Loader loader(synthetic_digits(230, 1, 1).train, {.batch_size = 50, .seed = 3});
  for (int64_t i = 0; i < steps; ++i) out.losses.push_back(engine.step(out.state, loader, loader.next()).loss);
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, float relative) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], relative * wanted[i]) << i;
}

TEST(Float8Training, LossesAreThoseOfBfloat16) {
  const TrainedRun wide = run_of(float8_options("bfloat16"), 60), narrow = run_of(float8_options(), 60);
  EXPECT_LT(wide.losses.back(), wide.losses.front() / 2);
  for (size_t i = 0; i < wide.losses.size(); ++i) EXPECT_NEAR(narrow.losses[i], wide.losses[i], 0.1) << i;
}

TEST(Float8Training, HistoryHasTheLargestValuesOfEachStep) {
  EngineOptions with = float8_options();
  with.precision.float8_history = 4;
  const TrainedRun run = run_of(with, 2);
  ASSERT_EQ(run.state.float8.largest[0].shape(), (Shape{2, 3, 4}));
  const std::vector<float> history = run.history();
  const TrainState before = Engine(linear_model(), with).create_state();
  const float weights = max(abs(astype(before.params[0], bf16))).item<float>();
  for (size_t i = 0; i < history.size(); ++i) EXPECT_EQ(history[i] > 0, i % 4 >= 2) << i;  // two steps, the newest last
  EXPECT_EQ(history[1 * 4 + 2], weights);  // of the hidden layer, in the first step
}

TEST(Float8Training, HistoryDoesNotDependOnMicroBatches) {
  EngineOptions with = float8_options();
  const TrainedRun whole = run_of(with, 1);
  with.accumulate = 5;
  expect_near(run_of(with, 1).history(), whole.history(), 1e-6f);
}

TEST(Float8Training, DoesNotDependOnRematerialization) {
  EngineOptions with = float8_options();
  const TrainedRun stored = run_of(with);
  with.remat = true;
  const TrainedRun again = run_of(with);
  EXPECT_EQ(again.history(), stored.history());
  EXPECT_EQ(again.losses, stored.losses);
}

// Sums over lanes are rounded differently, which later steps amplify: the history is that of the first step.
TEST(Float8Training, DoesNotDependOnDevices) {
  EngineOptions with = float8_options();
  with.mesh = make_mesh({{"data", 1}});
  const TrainedRun first = run_of(with, 1), alone = run_of(with, 3);
  const auto expect_same = [&](const EngineOptions& options) {
    expect_near(run_of(options, 1).history(), first.history(), 0.01f);
    const TrainedRun shared = run_of(options, 3);
    for (size_t i = 0; i < alone.losses.size(); ++i) EXPECT_NEAR(shared.losses[i], alone.losses[i], 0.02) << i;
  };
  with.mesh = make_mesh({{"data", 8}});
  for (const int zero : {0, 3}) {
    SCOPED_TRACE(zero);
    with.plan = {.zero = zero};
    expect_same(with);
  }
  with.mesh = make_mesh({{"data", 2}, {"model", 4}});
  with.plan = tensor_parallel({{"hidden/w", P({}, "model")}, {"hidden/b", P("model")}, {"out/w", P("model")}});
  expect_same(with);
}

TEST(Float8Training, CheckpointsHaveTheHistory) {
  const TempDir dir;
  EngineOptions with = float8_options();
  with.checkpoint_dir = dir.path();
  const auto fit = [&](int64_t steps) {
    Engine engine(linear_model(), with);
    TrainState state = engine.restore_or_create("auto");
    Loader loader(synthetic_digits(230, 1, 1).train, {.batch_size = 50, .seed = 3});
    engine.fit(state, loader, {.steps = steps});
    return state.float8.largest.at(0).to_vector<float>();
  };
  fit(3);
  const std::vector<float> resumed = fit(6);
  const TempDir other;
  with.checkpoint_dir = other.path();
  EXPECT_EQ(resumed, fit(6));
}

TEST(Float8Training, ResumesFromBfloat16WithAnEmptyHistory) {
  const Task task = image_task(linear_model());
  const TrainedRun wide = run_of(float8_options("bfloat16"), 1);
  const Checkpoint stored = detail::to_checkpoint(wide.state, task, {});
  const TrainState state = detail::from_checkpoint(stored, task, float8_options());
  EXPECT_EQ(max(state.float8.largest.at(0)).item<float>(), 0);
  EXPECT_EQ(state.step, 1);
}

TEST(Float8Training, EvaluationComputesInBfloat16) {
  Engine narrow(linear_model(), float8_options()), wide(linear_model(), float8_options("bfloat16"));
  const SourcePtr test = image_source(synthetic_digits(1, 50, 1).test);
  EXPECT_EQ(narrow.evaluate(narrow.create_state(), test).loss, wide.evaluate(wide.create_state(), test).loss);
}

TEST(Float8Training, ModelsWithoutLinearLayersAreErrors) {
  Engine engine(find_model("mlp"), float8_options());
  TrainState state = engine.create_state();
  Loader loader(synthetic_digits(60, 1, 1).train, {.batch_size = 50});
  EXPECT_THROWS(engine.step(state, loader, loader.next()), Error,
                "precision float8: model mlp applies no nn::Linear layer with its mode; choose bfloat16");
  TrainConfig config;
  config.precision = "float8";
  EXPECT_THROWS(validate(config), Error,
                "precision: float8 is for products of the blocks of gpt and vit, which model mlp does not have; choose "
                "bfloat16");
  config = {};
  config.float8_history = 4;
  EXPECT_THROWS(validate(config), Error, "float8_history: 4 has no effect with precision float32");
}

struct GptState {
  Gpt gpt;
  OptimizerState optimizer;
  Float8History float8;
};

// A small character model learns its text, in both precisions alike.
TEST(Float8Training, LanguageModelLearnsAsInBfloat16) {
  GptConfig config{.vocabulary = 16, .context = 16, .layers = 2, .heads = 2, .width = 32, .bias = false};
  const auto loss_after = [&](const Precision& precision, int64_t steps) {
    const Optimizer optimizer{.kind = Optimizer::Kind::adamw, .schedule = {.peak = 3e-3}};
    GptState state{create_gpt(config, random::key(1)), {}, create_float8_history(precision, 12)};
    state.optimizer = create_state(optimizer, state.gpt);
    const auto step = jit([&](const GptState& s, const Array& starts) {
      const Array tokens = (expand_dims(starts, 1) + arange(17, i32) * 3) % 16;  // every fourth token follows
      const auto loss = [&](const Gpt& gpt, const std::vector<Array>& scales) {
        nn::Float8Products float8(scales);
        const nn::Mode mode{
            .training = true, .compute = precision.compute, .float8 = precision.float8 ? &float8 : nullptr};
        const Array logits = apply(config, gpt, slice(tokens, {0, 0}, {8, 16}), mode);
        return mean(softmax_cross_entropy(logits, slice(tokens, {0, 1}, {8, 17})));
      };
      auto [value, grads] = value_and_grad<0, 1>(loss)(s.gpt, float8_scales(s.float8));
      auto [next, next_state] = update(optimizer, s.gpt, std::get<0>(grads), s.optimizer);
      return std::pair{GptState{next, next_state, advanced(s.float8, std::get<1>(grads))}, value};
    });
    double last = 0;
    for (int64_t i = 0; i < steps; ++i) {
      auto [next, value] = step(state, random::randint(random::key(static_cast<uint64_t>(i)), {8}, 0, 16));
      state = next;
      last = value.template item<double>();
    }
    return last;
  };
  const double wide = loss_after(precision_of("bfloat16"), 80), narrow = loss_after(precision_of("float8"), 80);
  EXPECT_LT(wide, 1.0);
  EXPECT_NEAR(narrow, wide, 0.1);
}

}  // namespace
}  // namespace lockstep
