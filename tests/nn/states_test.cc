// States of models: how they are updated, and that optimizers leave them alone.
#include <algorithm>
#include <cmath>

#include "array/near.h"
#include "lockstep/averages.h"
#include "lockstep/lockstep.h"
#include "lockstep/nn.h"
#include "lockstep/optimizers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

struct Normed {
  nn::Dense in;
  nn::BatchNorm norm;
  nn::Dense out;
};

Normed some_normed() {
  const auto [in, out] = random::split<2>(random::key(1));
  return {nn::dense(in, 3, 4), nn::batch_norm(4), nn::dense(out, 4, 1)};
}

Array predicted(const Normed& net, const Array& x, const nn::Mode& mode) {
  return nn::apply(net.out, nn::apply(net.norm, nn::apply(net.in, x), mode));
}

// Gradients of 1 for parameters and of a million for states.
Normed large_state_gradients(const Normed& net) {
  Normed out = tree_map([](const Array& a) { return ones_like(a); }, net);
  out.norm.mean = full({4}, 1e6f);
  out.norm.variance = full({4}, 1e6f);
  return out;
}

TEST(States, AreNoParametersOfOptimizers) {
  using Kind = Optimizer::Kind;
  for (const Kind kind :
       {Kind::sgd, Kind::momentum, Kind::nesterov, Kind::adam, Kind::adamw, Kind::lion, Kind::adafactor, Kind::muon}) {
    const Optimizer o{.kind = kind, .schedule = {.peak = 0.1}, .weight_decay = 0.1, .no_decay = {}, .clip_norm = 0.5};
    const Normed net = some_normed(), grads = large_state_gradients(net);
    // The same parameters without states.
    const std::vector<std::string> paths{"in/w", "in/b", "norm/scale", "norm/bias", "out/w", "out/b"};
    std::vector<Array> params, param_grads;
    for (const auto& [path, leaf] : tree_flatten(net))
      if (std::find(paths.begin(), paths.end(), path) != paths.end()) {
        params.push_back(leaf);
        param_grads.push_back(ones_like(leaf));
      }
    const OptimizerState state = create_state(o, net);
    EXPECT_EQ(tree_leaves(state).size(), tree_leaves(create_state(o, paths, params)).size()) << to_string(kind);
    const auto [next, next_state] = update(o, net, grads, state);
    const Update wanted = update(o, paths, params, param_grads, create_state(o, paths, params));
    EXPECT_EQ(next.norm.mean.to_vector<float>(), net.norm.mean.to_vector<float>()) << to_string(kind);
    EXPECT_EQ(next.norm.variance.to_vector<float>(), net.norm.variance.to_vector<float>()) << to_string(kind);
    EXPECT_EQ(next.in.w.to_vector<float>(), wanted.params[0].to_vector<float>()) << to_string(kind);
    EXPECT_EQ(next.norm.scale.to_vector<float>(), wanted.params[2].to_vector<float>()) << to_string(kind);
    EXPECT_EQ(next.out.b.to_vector<float>(), wanted.params[5].to_vector<float>()) << to_string(kind);
  }
}

TEST(States, CountInNoNorm) {
  EXPECT_ELEMENTS(global_norm(large_state_gradients(some_normed())), {std::sqrt(3. * 4 + 4 + 4 + 4 + 4 + 1)}, 1e-5);
}

TEST(States, AreNotAveraged) {
  const Normed before = some_normed();
  Normed after = tree_map([](const Array& a) { return a + 1; }, before);
  const Normed average = update_average(before, after, 0.5, Array(100));
  EXPECT_EQ(average.norm.variance.to_vector<float>(), after.norm.variance.to_vector<float>());
  EXPECT_ELEMENTS(average.norm.bias, std::vector<double>(4, 0.5), 1e-7);
}

TEST(States, FollowTheBatchesOfTheShortestTrainingStep) {
  const Array x = random::normal(random::key(2), {64, 3}), y = sum(x, 1, {.keepdims = true}) + 5;
  const Optimizer adam{.kind = Optimizer::Kind::adamw, .schedule = {.peak = 0.05}, .weight_decay = 0.1};
  const auto step = jit([&](Normed net, OptimizerState state) {
    const auto loss = [&](const Normed& n) {
      nn::StateUpdates updates;
      const Array value = mean(square(predicted(n, x, {.training = true, .updates = &updates}) - y));
      return std::pair{value, nn::with_updates(n, updates)};
    };
    const auto [value, grads] = value_and_grad(loss)(net);
    return update(adam, value.second, grads, state);
  });
  Normed net = some_normed();
  const Array hidden = nn::apply(net.in, x);
  const Array wanted_mean = 0.1 * mean(hidden, 0), wanted_variance = 0.9 + 0.1 * var(hidden, 0, {.ddof = 1});
  OptimizerState state = create_state(adam, net);
  std::tie(net, state) = step(net, state);
  EXPECT_ELEMENTS(net.norm.mean, wanted_mean.to_vector<double>(), 1e-5);
  EXPECT_ELEMENTS(net.norm.variance, wanted_variance.to_vector<double>(), 1e-5);
  for (int i = 0; i < 150; ++i) std::tie(net, state) = step(net, state);
  // The running values are those of the data, so that evaluation agrees with training.
  EXPECT_LT(mean(square(predicted(net, x, {}) - y)).item<float>(), 0.1F);
}

TEST(States, AreNotForgotten) {
  const Normed net = some_normed();
  const Array x = ones({2, 3});
  EXPECT_ERROR(predicted(net, x, {.training = true}),
               "nn::Mode::update: a layer has a next value of its state f32[4] in training, but Mode::updates is null; "
               "set it, and return nn::with_updates(model, updates) from the loss");
  nn::StateUpdates updates;
  static_cast<void>(predicted(net, x, {.training = true, .updates = &updates}));
  const Normed copy = tree_map([](const Array& a) { return a * 1; }, net);
  EXPECT_ERROR(
      nn::with_updates(copy, updates),
      "nn::with_updates: an update of f32[4] belongs to no state of this model; pass the model that the layers "
      "were applied from");
  EXPECT_ERROR(nn::with_updates(net.in, updates), "nn::with_updates: an update of f32[4] belongs to no state");
}

}  // namespace
}  // namespace lockstep
