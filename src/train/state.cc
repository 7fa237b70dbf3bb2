#include "train/state.h"

#include <algorithm>
#include <map>

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

  std::vector<Array> get(std::string_view prefix, const Model& model, const std::string& user) const {
    std::vector<Array> out;
    for (size_t i = 0; i < model.paths.size(); ++i)
      out.push_back(get(std::string(prefix) + model.paths[i], model.types[i], user));
    return out;
  }

  // Throws Error when the checkpoint has parameters that the model does not have.
  void check_all_used(const Model& model) const {
    for (const auto& [name, array] : arrays_) {
      if (!name.starts_with(kParams)) continue;
      const std::string path = name.substr(kParams.size());
      if (std::find(model.paths.begin(), model.paths.end(), path) == model.paths.end())
        throw_error(
            "restore: the checkpoint of step {} has {} as {}, which model {} does not have; use the --model it was "
            "trained with, or start a new run with --resume none",
            step_, name, to_string(array.type()), model.name);
    }
  }

 private:
  int64_t step_;
  std::map<std::string, Array> arrays_;
};

}  // namespace

Checkpoint to_checkpoint(const TrainState& state, const Model& model) {
  Checkpoint out{.step = state.step, .cursor = state.cursor, .seed = state.seed};
  const auto add = [&](std::string_view prefix, const std::vector<Array>& leaves) {
    for (size_t i = 0; i < leaves.size(); ++i) out.arrays.emplace_back(std::string(prefix) + model.paths[i], leaves[i]);
  };
  add(kParams, state.params);
  out.arrays.emplace_back(kStep, state.optimizer.step);
  add(kFirst, state.optimizer.first);
  add(kSecond, state.optimizer.second);
  for (const Array& scale : state.loss_scale.scale) out.arrays.emplace_back(kScale, scale);
  for (const Array& steps : state.loss_scale.finite_steps) out.arrays.emplace_back(kFiniteSteps, steps);
  return out;
}

NamedSharding sharding_of(const std::string& name, const Type& type, const Model& model,
                          const TrainShardings& shardings) {
  if (name == kStep || name == kScale || name == kFiniteSteps) return shardings.replicated;
  for (const auto& [prefix, own] : {std::pair(kParams, &shardings.params), std::pair(kFirst, &shardings.state),
                                    std::pair(kSecond, &shardings.state)}) {
    if (!name.starts_with(prefix)) continue;
    const auto at = std::find(model.paths.begin(), model.paths.end(), name.substr(prefix.size()));
    const auto i = static_cast<size_t>(at - model.paths.begin());
    if (at != model.paths.end() && model.types[i].dtype == type.dtype && model.types[i].shape == type.shape)
      return (*own)[i];
  }
  return {};
}

TrainState from_checkpoint(const Checkpoint& checkpoint, const Model& model, const Optimizer& optimizer,
                           const Precision& precision) {
  const ArraysByName arrays(checkpoint);
  TrainState state{.step = checkpoint.step, .cursor = checkpoint.cursor, .seed = checkpoint.seed};
  state.params = arrays.get(kParams, model, "model " + model.name);
  arrays.check_all_used(model);

  const std::string user = "optimizer " + to_string(optimizer.kind);
  const OptimizerState form = create_state(optimizer, state.params);
  state.optimizer.step = arrays.get(kStep, form.step.type(), user);
  if (!form.first.empty()) state.optimizer.first = arrays.get(kFirst, model, user);
  if (!form.second.empty()) state.optimizer.second = arrays.get(kSecond, model, user);

  // A run may resume with another precision; then the loss scale is reset.
  state.loss_scale = create_loss_scale(precision);
  if (precision.loss_scaling && arrays.has(kScale)) {
    state.loss_scale.scale = {arrays.get(kScale, {f32, {}}, "precision float16")};
    state.loss_scale.finite_steps = {arrays.get(kFiniteSteps, {i32, {}}, "precision float16")};
  }
  return state;
}

}  // namespace lockstep::detail
