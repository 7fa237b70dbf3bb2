#include "train/state.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kParams = "params/", kFirst = "optimizer/first/", kSecond = "optimizer/second/";
constexpr std::string_view kStep = "optimizer/step", kScale = "loss_scale/scale",
                           kFiniteSteps = "loss_scale/finite_steps";

// Looks up a checkpoint's arrays by name, and checks their types.
class ArraysByName {
 public:
  explicit ArraysByName(const Checkpoint& checkpoint) : step_(checkpoint.step) {
    for (const auto& [name, array] : checkpoint.arrays) arrays_.emplace(name, array);
  }

  bool has(std::string_view name) const { return arrays_.contains(std::string(name)); }

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

Checkpoint to_checkpoint(const TrainState& state, const Task& task) {
  Checkpoint out{.step = state.step, .cursor = state.cursor, .seed = state.seed};
  const auto add = [&](std::string_view prefix, const std::vector<std::string>& paths,
                       const std::vector<Array>& leaves) {
    for (size_t i = 0; i < leaves.size(); ++i) out.arrays.emplace_back(std::string(prefix) + paths[i], leaves[i]);
  };
  const std::vector<std::string> trained = trained_of(task, task.paths);
  add(kParams, task.paths, state.params);
  out.arrays.emplace_back(kStep, state.optimizer.step);
  add(kFirst, trained, state.optimizer.first);
  add(kSecond, trained, state.optimizer.second);
  for (const Array& scale : state.loss_scale.scale) out.arrays.emplace_back(kScale, scale);
  for (const Array& steps : state.loss_scale.finite_steps) out.arrays.emplace_back(kFiniteSteps, steps);
  return out;
}

NamedSharding sharding_of(const std::string& name, const Type& type, const Task& task,
                          const TrainShardings& shardings) {
  if (name == kStep || name == kScale || name == kFiniteSteps) return shardings.replicated;
  const std::vector<std::string> trained = trained_of(task, task.paths);
  const std::vector<Type> trained_types = trained_of(task, task.types);
  for (const auto& [prefix, paths, types, own] : {std::tuple(kParams, &task.paths, &task.types, &shardings.params),
                                                  std::tuple(kFirst, &trained, &trained_types, &shardings.state),
                                                  std::tuple(kSecond, &trained, &trained_types, &shardings.state)}) {
    if (!name.starts_with(prefix)) continue;
    const auto at = std::find(paths->begin(), paths->end(), name.substr(prefix.size()));
    const auto i = static_cast<size_t>(at - paths->begin());
    if (at != paths->end() && (*types)[i].dtype == type.dtype && (*types)[i].shape == type.shape) return (*own)[i];
  }
  return {};
}

TrainState from_checkpoint(const Checkpoint& checkpoint, const Task& task, const Optimizer& optimizer,
                           const Precision& precision) {
  const ArraysByName arrays(checkpoint);
  TrainState state{.step = checkpoint.step, .cursor = checkpoint.cursor, .seed = checkpoint.seed};
  state.params = arrays.get(kParams, task.paths, task.types, "model " + task.name);
  arrays.check_all_used(task);

  const std::string user = "optimizer " + to_string(optimizer.kind);
  const OptimizerState form = create_state(optimizer, trained_of(task, state.params));
  state.optimizer.step = arrays.get(kStep, form.step.type(), user);
  if (!form.first.empty()) state.optimizer.first = arrays.get(kFirst, trained_of(task, task.paths), trained_of(task, task.types), user);
  if (!form.second.empty()) state.optimizer.second = arrays.get(kSecond, trained_of(task, task.paths), trained_of(task, task.types), user);

  // A run may resume with another precision; then the loss scale is reset.
  state.loss_scale = create_loss_scale(precision);
  if (precision.loss_scaling && arrays.has(kScale)) {
    state.loss_scale.scale = {arrays.get(kScale, {f32, {}}, "precision float16")};
    state.loss_scale.finite_steps = {arrays.get(kFiniteSteps, {i32, {}}, "precision float16")};
  }
  return state;
}

}  // namespace lockstep::detail
