// The first 20 losses of a language model and of a residual network, compared with PyTorch's in double precision from the
// same weights and data. model_losses.py has computed them; with LOCKSTEP_MODEL_LOSS_INPUTS=DIR the tests write what it
// reads to DIR.
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/checkpoint.h"
#include "lockstep/engine.h"
#include "lockstep/resnet.h"

namespace lockstep {
namespace {

constexpr int64_t kSteps = 20;

// The losses of the steps, then that of an evaluation on all examples.
std::vector<double> losses_of(const Task& task, const BatchArrays& data, const Optimizer& optimizer, int64_t batch) {
  std::vector<double> out;
  EngineOptions options{.optimizer = optimizer, .seed = 7};
  options.mesh = make_mesh({{"data", 1}});
  options.hooks.on_step = [&](const TrainState&, const StepMetrics& metrics) {
    out.push_back(metrics.loss);
    return true;
  };
  Engine engine(task, options);
  TrainState state = engine.create_state();
  if (const char* dir = std::getenv("LOCKSTEP_MODEL_LOSS_INPUTS")) {
    Checkpoint inputs;
    for (size_t i = 0; i < task.paths.size(); ++i)
      inputs.arrays.emplace_back("params/" + task.paths[i], state.params[i]);
    for (const auto& [name, array] : data) inputs.arrays.emplace_back("data/" + name, array);
    save_checkpoint(std::string(dir) + "/" + task.name, inputs);
  }
  const SourcePtr source = array_source(data);
  Loader loader(source, {.batch_size = batch, .shuffle = false});
  engine.fit(state, loader, {.steps = kSteps});
  out.push_back(engine.evaluate(state, source).loss);
  return out;
}

void expect_reference(const std::string& model, const std::vector<double>& losses) {
  std::ifstream file(LOCKSTEP_TEST_DATA "/model_losses.json");
  const std::vector<double> wanted = nlohmann::json::parse(file)[model];
  ASSERT_EQ(losses.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 1e-4 * wanted[i]) << "step " << i;
}

TEST(ModelLosses, LanguageModelMatchesPyTorch) {
  GptConfig config = gpt_config("124m");
  config.vocabulary = 65;
  config.context = 32;
  config.layers = 3;
  config.heads = 4;
  config.width = 64;
  const Array tokens = random::randint(random::key(1), {kSteps * 8, config.context + 1}, 0, 65);
  const Shape rows = {kSteps * 8, config.context};
  const BatchArrays data = {{"inputs", slice(tokens, {0, 0}, rows)},
                            {"targets", slice(tokens, {0, 1}, {rows[0], rows[1] + 1})}};
  expect_reference("gpt", losses_of(language_task(config), data,
                                    {.schedule = {.peak = 3e-3}, .beta2 = 0.99, .weight_decay = 0.1}, 8));
}

TEST(ModelLosses, ResidualNetworkMatchesPyTorch) {
  ResnetConfig config;
  config.channels = 3;
  config.widths = {16, 32, 64, 128};
  const Model model = make_model(
      "resnet", [config](const Array& key) { return create_resnet(config, key); },
      [config](const Resnet& net, const Array& images, const nn::Mode& mode) {
        return apply(config, net, images, mode);
      });
  const BatchArrays data = {{"images", astype(random::randint(random::key(2), {kSteps * 64, 16, 16, 3}, 0, 256), u8)},
                            {"labels", astype(random::randint(random::key(3), {kSteps * 64}, 0, 10), u8)}};
  // The steps are small: with large ones rounding changes the sign of an input of a ReLU, and the losses soon differ by
  // more than 1e-4 between f32 and double precision in PyTorch itself.
  expect_reference("resnet",
                   losses_of(image_task(model), data,
                             {.kind = Optimizer::Kind::momentum, .schedule = {.peak = 3e-4}, .weight_decay = 0}, 64));
}

}  // namespace
}  // namespace lockstep
