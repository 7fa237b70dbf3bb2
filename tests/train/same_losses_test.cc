// MLP and CNN train to the same losses under every sharding plan, on any number of lanes (LOCKSTEP_CPU_LANES).
#include <gtest/gtest.h>
#include <lockstep/lockstep.h>
#include <lockstep/train.h>

#include "train/eight_devices.h"

namespace lockstep {
namespace {

// The structs of find_model("mlp") and ("cnn") with narrower layers, their parameters in any floating type.
Model narrow_mlp(DType dtype) {
  return make_model(
      "mlp",
      [dtype](const Array& key) {
        MlpParams params{.dense = {nn::dense(random::fold_in(key, 0), 784, 24),
                                   nn::dense(random::fold_in(key, 1), 24, 16),
                                   nn::dense(random::fold_in(key, 2), 16, 10)}};
        return tree_map([dtype](const Array& a) { return astype(a, dtype); }, params);
      },
      [](const MlpParams& params, const Array& images, const nn::Mode&) {
        const Array x = relu(nn::apply(params.dense[0], nn::flatten(images)));
        return nn::apply(params.dense[2], relu(nn::apply(params.dense[1], x)));
      });
}

Model narrow_cnn(DType dtype) {
  return make_model(
      "cnn",
      [dtype](const Array& key) {
        CnnParams params{
            .conv = {nn::conv2d(random::fold_in(key, 0), 5, 1, 4), nn::conv2d(random::fold_in(key, 1), 5, 4, 8)},
            .dense = {nn::dense(random::fold_in(key, 2), 7 * 7 * 8, 16), nn::dense(random::fold_in(key, 3), 16, 10)}};
        return tree_map([dtype](const Array& a) { return astype(a, dtype); }, params);
      },
      [](const CnnParams& params, const Array& images, const nn::Mode&) {
        Array x = expand_dims(images, -1);
        for (const nn::Conv2d& layer : params.conv) x = max_pool(relu(nn::apply(layer, x)), {.window = 2});
        return nn::apply(params.dense[1], relu(nn::apply(params.dense[0], nn::flatten(x))));
      });
}

// Pairs of layers: the first column-parallel, the second row-parallel.
std::vector<ShardingRule> rules_of(const Model& model) {
  if (model.name == "mlp") return {{"dense/0/w", P({}, "model")}, {"dense/0/b", P("model")}, {"dense/1/w", P("model")}};
  return {{"conv/0/w", P({}, {}, {}, "model")}, {"conv/0/b", P("model")},  {"conv/1/w", P({}, {}, "model")},
          {"dense/0/w", P({}, "model")},        {"dense/0/b", P("model")}, {"dense/1/w", P("model")}};
}

struct LossCase {
  const char* name;
  int64_t data, model;
  bool tensor;
  int zero;
};
constexpr LossCase kCases[] = {{"data", 8, 1, false, 0},
                               {"zero 1", 8, 1, false, 1},
                               {"zero 2", 8, 1, false, 2},
                               {"zero 3", 8, 1, false, 3},
                               {"tensor", 1, 4, true, 0},
                               {"tensor and data", 2, 4, true, 0},
                               {"tensor and zero 1", 2, 4, true, 1},
                               {"tensor and zero 2", 4, 2, true, 2},
                               {"tensor and zero 3", 2, 2, true, 3},
                               {"tensor and zero 3, data wide", 4, 2, true, 3}};
constexpr LossCase kAloneCase = {"alone", 1, 1, false, 0};

std::vector<double> losses(const Model& model, const LossCase& c, DType dtype) {
  ShardingPlan plan{.zero = c.zero};
  if (c.tensor) plan.rules = rules_of(model);
  Engine engine(model, {.mesh = make_mesh({{"data", c.data}, {"model", c.model}}),
                        .plan = plan,
                        .optimizer = {.schedule = {.peak = 3e-3}, .weight_decay = 1e-3, .clip_norm = 1},
                        .precision = {.compute = dtype},
                        .seed = 5});
  TrainState state = engine.create_state();
  Loader loader(synthetic_digits(50, 1, 1).train, {.batch_size = 20, .seed = 3});
  std::vector<double> out;
  for (int step = 0; step < 5; ++step) out.push_back(engine.step(state, loader, loader.next()).loss);
  return out;
}

void expect_same_losses(Model (*make)(DType), DType dtype, double tolerance) {
  const Model model = make(dtype);
  const std::vector<double> alone = losses(model, kAloneCase, dtype);
  EXPECT_LT(alone.back(), alone.front());
  for (const LossCase& c : kCases) {
    const std::vector<double> sharded = losses(model, c, dtype);
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(sharded[i], alone[i], tolerance * alone[i]) << c.name << ", step " << i;
  }
}

TEST(SameLosses, MlpInF64) { expect_same_losses(narrow_mlp, f64, 1e-5); }
TEST(SameLosses, MlpInF32) { expect_same_losses(narrow_mlp, f32, 1e-4); }
TEST(SameLosses, CnnInF64) { expect_same_losses(narrow_cnn, f64, 1e-5); }
TEST(SameLosses, CnnInF32) { expect_same_losses(narrow_cnn, f32, 1e-4); }

}  // namespace
}  // namespace lockstep
