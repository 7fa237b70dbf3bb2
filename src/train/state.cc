#include "train/state.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/check.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kParams = "params/", kAverage = "average/";
const std::string kOptimizer = "optimizer/";
// Metrics of a checkpoint: TrainState::best_loss, best_step and evaluations_since_best.
constexpr const char *kBestLoss = "best_validation_loss", *kBestStep = "best_validation_step",
                     *kSinceBest = "evaluations_since_best";
constexpr std::string_view kStep = "optimizer/step", kScale = "loss_scale/scale",
                           kFiniteSteps = "loss_scale/finite_steps", kFloat8 = "float8/largest";

// Looks up a checkpoint's arrays by name, and checks their types.
class ArraysByName {
 public:
  explicit ArraysByName(const Checkpoint& checkpoint) : step_(checkpoint.step) {
    for (const auto& [name, array] : checkpoint.arrays) arrays_.emplace(name, array);
  }

  bool has(std::string_view name) const { return arrays_.contains(std::string(name)); }

  // The array with this name and type, if there is one.
  std::optional<Array> find(std::string_view name, const Type& wanted) const {
    const auto at = arrays_.find(std::string(name));
    if (at == arrays_.end() || at->second.dtype() != wanted.dtype || at->second.shape() != wanted.shape) return {};
    return at->second;
  }

  Array get(std::string_view name, const Type& wanted, const std::string& user) const {
    const auto at = arrays_.find(std::string(name));
    if (at == arrays_.end())
      throw_error(
          "restore: the checkpoint of step {} has no {}, which {} needs; it was written by another model or "
          "optimizer: use the settings it was trained with, or start a new run with --resume none",
          step_, name, user);
    const Type& type = at->second.type();
    if (type.dtype != wanted.dtype || type.shape != wanted.shape)
      throw_error(
          "restore: the checkpoint of step {} has {} as {}, but {} needs {}; use the settings it was trained with, or "
          "start a new run with --resume none",
          step_, name, to_string(type), user, to_string(wanted));
    return at->second;
  }

  std::vector<Array> get(std::string_view prefix, const std::vector<std::string>& paths, const std::vector<Type>& types,
                         const std::string& user) const {
    std::vector<Array> out;
    for (size_t i = 0; i < paths.size(); ++i) out.push_back(get(std::string(prefix) + paths[i], types[i], user));
    return out;
  }

  // Throws Error when the checkpoint has parameters that the model does not have.
  void check_all_used(const Task& task) const {
    for (const auto& [name, array] : arrays_) {
      if (!name.starts_with(kParams)) continue;
      const std::string path = name.substr(kParams.size());
      if (std::find(task.paths.begin(), task.paths.end(), path) == task.paths.end())
        throw_error(
            "restore: the checkpoint of step {} has {} as {}, which model {} does not have; use the --model it was "
            "trained with, or start a new run with --resume none",
            step_, name, to_string(array.type()), task.name);
    }
  }

 private:
  int64_t step_;
  std::map<std::string, Array> arrays_;
};

}  // namespace

int64_t weight_matrices(const Task& task) {
  const std::vector<Type> types = trained_of(task, task.types);
  return std::count_if(types.begin(), types.end(), [](const Type& type) { return type.rank() == 2; });
}

Checkpoint to_checkpoint(const TrainState& state, const Task& task, const Optimizer& optimizer) {
  Checkpoint out{.step = state.step, .cursor = state.cursor, .seed = state.seed};
  const auto add = [&](std::string_view prefix, const std::vector<std::string>& paths,
                       const std::vector<Array>& leaves) {
    for (size_t i = 0; i < leaves.size(); ++i) out.arrays.emplace_back(std::string(prefix) + paths[i], leaves[i]);
  };
  add(kParams, task.paths, state.params);
  out.arrays.emplace_back(kStep, state.optimizer.step);
  const std::vector<Array> arrays = tree_leaves(state.optimizer);  // the step, then the arrays of state_arrays()
  const std::vector<StateArray> list =
      state_arrays(optimizer, trained_of(task, task.paths), trained_of(task, task.types));
  LOCKSTEP_CHECK(arrays.size() == list.size() + 1, "{} arrays of {}", arrays.size(), list.size() + 1);
  for (size_t i = 0; i < list.size(); ++i) out.arrays.emplace_back(kOptimizer + list[i].name, arrays[i + 1]);
  add(kAverage, trained_of(task, task.paths), state.average);
  if (std::isfinite(state.best_loss)) {
    out.metrics[kBestLoss] = state.best_loss;
    out.metrics[kBestStep] = static_cast<double>(state.best_step);
    out.metrics[kSinceBest] = static_cast<double>(state.evaluations_since_best);
  }
  for (const Array& scale : state.loss_scale.scale) out.arrays.emplace_back(kScale, scale);
  for (const Array& steps : state.loss_scale.finite_steps) out.arrays.emplace_back(kFiniteSteps, steps);
  for (const Array& largest : state.float8.largest) out.arrays.emplace_back(kFloat8, largest);
  return out;
}

NamedSharding sharding_of(const std::string& name, const Type& type, const Task& task, const Optimizer& optimizer,
                          const TrainShardings& shardings) {
  if (name == kStep || name == kScale || name == kFiniteSteps || name == kFloat8) return shardings.replicated;
  const std::vector<std::string> trained = trained_of(task, task.paths);
  const std::vector<Type> types = trained_of(task, task.types);
  const auto same = [&](const Type& own) { return own.dtype == type.dtype && own.shape == type.shape; };
  if (name.starts_with(kOptimizer)) {
    const std::vector<StateArray> list = state_arrays(optimizer, trained, types);
    for (size_t i = 0; i < list.size(); ++i)
      if (name == kOptimizer + list[i].name && same(list[i].type)) return shardings.optimizer[i];
  }
  for (const auto& [prefix, paths, own_types, own] : {std::tuple(kParams, &task.paths, &task.types, &shardings.params),
                                                      std::tuple(kAverage, &trained, &types, &shardings.trained)}) {
    if (!name.starts_with(prefix)) continue;
    const auto at = std::find(paths->begin(), paths->end(), name.substr(prefix.size()));
    const auto i = static_cast<size_t>(at - paths->begin());
    if (at != paths->end() && same((*own_types)[i])) return (*own)[i];
  }
  return {};
}

std::vector<Array> params_of(const Checkpoint& checkpoint, const Task& task) {
  const ArraysByName arrays(checkpoint);
  arrays.check_all_used(task);
  std::vector<Array> out;
  for (size_t i = 0; i < task.paths.size(); ++i) {
    const std::string average = std::string(kAverage) + task.paths[i];
    out.push_back(arrays.get(arrays.has(average) ? average : std::string(kParams) + task.paths[i], task.types[i],
                             "model " + task.name));
  }
  return out;
}

TrainState from_checkpoint(const Checkpoint& checkpoint, const Task& task, const EngineOptions& options) {
  const Optimizer& optimizer = options.optimizer;
  const Precision& precision = options.precision;
  const double ema_decay = options.ema_decay;
  const ArraysByName arrays(checkpoint);
  TrainState state{.step = checkpoint.step, .cursor = checkpoint.cursor, .seed = checkpoint.seed};
  const auto metric = [&](const char* name) {
    const auto at = checkpoint.metrics.find(name);
    return at == checkpoint.metrics.end() ? std::nullopt : std::optional(at->second);
  };
  if (const std::optional<double> loss = metric(kBestLoss)) {
    state.best_loss = *loss;
    state.best_step = static_cast<int64_t>(metric(kBestStep).value_or(0));
    state.evaluations_since_best = static_cast<int64_t>(metric(kSinceBest).value_or(0));
  }
  state.params = arrays.get(kParams, task.paths, task.types, "model " + task.name);
  arrays.check_all_used(task);

  const std::string user = "optimizer " + to_string(optimizer.kind);
  const std::vector<StateArray> list =
      state_arrays(optimizer, trained_of(task, task.paths), trained_of(task, task.types));
  if (checkpoint.step == 0 && !arrays.has(kStep)) {
    state.optimizer = create_state(optimizer, trained_of(task, task.paths), trained_of(task, state.params));
  } else {
    std::vector<Array> found;
    const Array step = arrays.get(kStep, {i32, {}}, user);
    for (const StateArray& each : list) found.push_back(arrays.get(kOptimizer + each.name, each.type, user));
    state.optimizer = make_state(list, step, found);
  }
  // A run may begin to average its weights when it resumes: then the average starts with the present ones.
  const std::vector<std::string> paths = trained_of(task, task.paths);
  if (ema_decay > 0)
    state.average = arrays.has(std::string(kAverage) + paths[0])
                        ? arrays.get(kAverage, paths, trained_of(task, task.types), "ema_decay")
                        : trained_of(task, state.params);

  // A run may resume with another precision; then the loss scale and the history of 8-bit products are reset.
  state.loss_scale = create_loss_scale(precision);
  if (precision.loss_scaling && arrays.has(kScale)) {
    state.loss_scale.scale = {arrays.get(kScale, {f32, {}}, "precision float16")};
    state.loss_scale.finite_steps = {arrays.get(kFiniteSteps, {i32, {}}, "precision float16")};
  }
  state.float8 = create_float8_history(precision, weight_matrices(task));
  for (Array& largest : state.float8.largest)
    if (const std::optional<Array> stored = arrays.find(kFloat8, largest.type())) largest = *stored;
  return state;
}

}  // namespace lockstep::detail
