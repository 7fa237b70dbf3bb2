// Optimizers. An Optimizer is a plain value that selects an update rule; its state is a tree of arrays. update() is a
// pure function to be called inside a compiled step, usually with parameters and state donated.
//
//   const Optimizer adam{.kind = Optimizer::Kind::adam, .schedule = {.peak = 1e-3}};
//   OptimizerState state = create_state(adam, params);
//   std::tie(params, state) = update(adam, params, grads, state);
//
// A model with nn::State leaves is returned with those it was given: see nn::with_updates.
//
// Groups give parameters settings of their own, by patterns of their paths:
//
//   const Optimizer tune{.groups = {{.pattern = "*", .frozen = true}, {.pattern = "head/*", .rate = 0.1}}};
//
// Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"
#include "lockstep/schedules.h"
#include "lockstep/sharding.h"
#include "lockstep/tree.h"

namespace lockstep {

namespace detail {
// The defaults of Optimizer, not inline: they are long lists.
std::vector<std::string> default_no_decay();
std::vector<std::string> default_not_muon();
}  // namespace detail

struct Optimizer {
  enum class Kind : uint8_t { sgd, momentum, nesterov, adam, adamw, lion, adafactor, muon };

  // Settings of the parameters that match the pattern by their path. * matches any sequence of characters.
  struct Group {
    std::string pattern;
    double rate = 1;                           // factor of the schedule's rate
    std::optional<double> weight_decay = {};   // instead of Optimizer::weight_decay and no_decay
    std::optional<Optimizer::Kind> kind = {};  // instead of Optimizer::kind
    bool frozen = false;                       // is never updated and has no state

    bool operator==(const Group&) const = default;
  };

  Kind kind = Kind::adamw;
  Schedule schedule = {};
  double momentum = 0.9;  // momentum, nesterov: v = momentum * v + g
  double beta1 = 0.9;     // adam, adamw, lion
  double beta2 = 0.999;   // adam, adamw
  double epsilon = 1e-8;
  // adamw, lion, adafactor, muon: decoupled, w -= rate * weight_decay * w. The others add weight_decay * w to the
  // gradient.
  double weight_decay = 0;
  // Parameters without decay: patterns of their paths. By default "b", "*/b", "bias", "*/bias", "scale", "*/scale".
  std::vector<std::string> no_decay = detail::default_no_decay();
  // The largest norm of the gradients of all parameters that are not frozen; above it they are scaled down. 0: none.
  double clip_norm = 0;

  double lion_beta2 = 0.99;     // lion: m = lion_beta2 * m + (1 - lion_beta2) * g
  double muon_momentum = 0.95;  // muon: v = muon_momentum * v + g
  // muon: adamw updates parameters with fewer than two dimensions and those that match these patterns: embeddings and
  // output layers. Groups override it. By default "*embed*", and "x" and "x/*" for x in out, output, head and lm_head.
  std::vector<std::string> not_muon = detail::default_not_muon();
  double adam_rate = 1;  // muon: factor of the rate of all parameters that adamw updates
  // The last group that matches a parameter applies, so put general patterns first and exceptions after them.
  std::vector<Group> groups = {};
};
using ParameterGroup = Optimizer::Group;

// Throws Error when a value is out of range, naming the field.
void check(const Optimizer&);

// Convert between kinds and their names, such as "adamw". Throws Error for an unknown name, listing the known ones.
Optimizer::Kind optimizer_kind(std::string_view name);
std::string to_string(Optimizer::Kind);

// How one parameter is updated.
struct ParameterRule {
  Optimizer::Kind kind;
  double rate;          // factor of the schedule's rate
  double weight_decay;  // 0: none
  bool frozen;
};
// The rule of each parameter. Throws Error when
//   - a group matches no parameter, or only parameters that later groups also match
//   - the groups freeze all parameters
//   - a group chooses muon for a parameter with fewer than two dimensions
std::vector<ParameterRule> rules_of(const Optimizer&, const std::vector<std::string>& paths,
                                    const std::vector<Type>& types);

// The vectors have one array for each parameter that needs one, in the order of the parameters. state_arrays() lists
// them.
struct OptimizerState {
  Array step;                 // i32: number of updates made
  std::vector<Array> first;   // momentum, or the mean of gradients
  std::vector<Array> second;  // the mean of squared gradients
  // adafactor, matrices: the means of `second` over the last dimension, and over the one before it.
  std::vector<Array> second_rows = {}, second_columns = {};
};

// An array of an OptimizerState besides `step`.
struct StateArray {
  std::vector<Array> OptimizerState::*member;
  std::string name;  // "first/dense/0/w": its member and the path of its parameter
  size_t parameter;  // the index of the parameter
  Type type;
  std::optional<size_t> dropped = {};  // the dimension of the parameter that it lacks; nullopt: it has all
};
// All arrays of the state, in the order of tree_leaves(state) after `step`. Throws Error where rules_of() does.
std::vector<StateArray> state_arrays(const Optimizer&, const std::vector<std::string>& paths,
                                     const std::vector<Type>& types);
// The spec of a state array, given the spec of an array with the shape of the parameter: without the dropped dimension.
PartitionSpec state_spec(const StateArray&, const PartitionSpec& spec);
// The state of these arrays, one per element of `list`. REQUIRES: `list` is from state_arrays().
OptimizerState make_state(const std::vector<StateArray>& list, const Array& step, const std::vector<Array>& arrays);

struct Update {
  std::vector<Array> params;
  OptimizerState state;
};

// The initial state, and one update. Parameters are given as a list of leaves with their paths. Parameters and state
// are f32 or f64; gradients are converted to that type. The scalars of a step (rate, bias corrections) are computed
// in f64 and rounded to the parameters' type at the end. Frozen parameters are returned unchanged. Pass `norm` if the
// norm of the gradients is already known (see global_norm); otherwise it is computed when needed. Throw Error where
// check() and rules_of() do, and when the arguments do not fit each other.
OptimizerState create_state(const Optimizer&, const std::vector<std::string>& paths, const std::vector<Array>& params,
                            SourceLine at = SourceLine::here());
Update update(const Optimizer&, const std::vector<std::string>& paths, const std::vector<Array>& params,
              const std::vector<Array>& grads, const OptimizerState&, const Array& norm = {},
              SourceLine at = SourceLine::here());

// Muon's update of a matrix [m, n]: five Newton-Schulz iterations move its singular values close to 1: to 0.68 to 1.2,
// unless they are below 0.002 times its Frobenius norm. Computed in the type of the matrix.
Array orthogonalize(const Operand& matrix);

// The square root of the sum of all squared elements, in f32.
Array global_norm(const std::vector<Array>& leaves);

// Returns whether a path matches a pattern. * matches any sequence of characters, including slashes.
bool matches(std::string_view pattern, std::string_view path);

namespace detail {
Array global_norm(TreeRef grads);
OptimizerState create_state(const Optimizer&, TreeRef params);
// Updates the arrays of `next`, a copy of the parameters.
void update(const Optimizer&, TreeRef params, TreeRef grads, const OptimizerState&, TreeRef next,
            OptimizerState& next_state);
}  // namespace detail

// create_state(), update() and global_norm() for parameters of any tree type. nn::State leaves are no parameters: update()
// returns those of `params` unchanged, they have no optimizer state, and their gradients count nowhere.
template <class Params>
OptimizerState create_state(const Optimizer& optimizer, const Params& params, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::create_state(optimizer, detail::TreeRef(params));
}
template <class Params>
std::pair<Params, OptimizerState> update(const Optimizer& optimizer, const Params& params, const Params& grads,
                                         const OptimizerState& state, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  std::pair<Params, OptimizerState> next{params, {}};
  detail::update(optimizer, detail::TreeRef(params), detail::TreeRef(grads), state, detail::TreeRef(next.first),
                 next.second);
  return next;
}
template <class Params>
Array global_norm(const Params& grads, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::global_norm(detail::TreeRef(grads));
}

}  // namespace lockstep
