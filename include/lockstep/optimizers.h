// Optimizers. An Optimizer is a plain value that selects an update rule; its state is a tree of arrays. update() is a
// pure function to be called inside a compiled step, usually with parameters and state donated.
//
//   const Optimizer adam{.kind = Optimizer::Kind::adam, .schedule = {.peak = 1e-3}};
//   OptimizerState state = create_state(adam, params);
//   std::tie(params, state) = update(adam, params, grads, state);
//
// Safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/schedules.h"
#include "lockstep/tree.h"

namespace lockstep {

struct Optimizer {
  enum class Kind : uint8_t { sgd, momentum, nesterov, adam, adamw };

  Kind kind = Kind::adamw;
  Schedule schedule = {};
  double momentum = 0.9;  // momentum, nesterov: v = momentum * v + g
  double beta1 = 0.9;     // adam, adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // adamw: decoupled, w -= rate * weight_decay * w. The others add weight_decay * w to the gradient.
  double weight_decay = 0;
  // Parameters without decay: patterns of their paths. * matches any sequence of characters.
  std::vector<std::string> no_decay = {"b", "*/b", "bias", "*/bias", "scale", "*/scale"};
  // Gradients whose norm over all parameters is above this are scaled down to it; 0: never.
  double clip_norm = 0;
};

// Throws Error when a value is out of range, naming the field.
void check(const Optimizer&);

// Convert between kinds and the names "sgd", "momentum", "nesterov", "adam", "adamw". Throws Error for an unknown name,
// listing the known ones.
Optimizer::Kind optimizer_kind(std::string_view name);
std::string to_string(Optimizer::Kind);

// The vectors have one array per parameter, in the order of the parameters, or are empty if the optimizer does not use
// them.
struct OptimizerState {
  Array step;                 // i32: number of updates made
  std::vector<Array> first;   // momentum, or Adam's mean of gradients
  std::vector<Array> second;  // Adam's mean of squared gradients
};

struct Update {
  std::vector<Array> params;
  OptimizerState state;
};

// The initial state, and one update. Parameters are given as a list of leaves with their paths. Parameters and state
// are f32 or f64; gradients are converted to that type. The scalars of a step (rate, bias corrections) are computed
// in f64 and rounded to the parameters' type at the end. Pass `norm` if the norm of the gradients is already known
// (see global_norm); otherwise it is computed when needed.
OptimizerState create_state(const Optimizer&, const std::vector<Array>& params);
Update update(const Optimizer&, const std::vector<std::string>& paths, const std::vector<Array>& params,
              const std::vector<Array>& grads, const OptimizerState&, const Array& norm = {});

// The square root of the sum of all squared elements, in f32.
Array global_norm(const std::vector<Array>& leaves);

// Returns whether a path matches a pattern. * matches any sequence of characters, including slashes.
bool matches(std::string_view pattern, std::string_view path);

// create_state() and update() for parameters of any tree type.
template <class Params>
OptimizerState create_state(const Optimizer& optimizer, const Params& params) {
  return create_state(optimizer, tree_leaves(params));
}
template <class Params>
std::pair<Params, OptimizerState> update(const Optimizer& optimizer, const Params& params, const Params& grads,
                                         const OptimizerState& state) {
  std::vector<std::string> paths;
  for (auto& [path, leaf] : tree_flatten(params)) paths.push_back(path);
  Update next = update(optimizer, paths, tree_leaves(params), tree_leaves(grads), state);
  return {tree_unflatten(params, next.params), std::move(next.state)};
}

}  // namespace lockstep
