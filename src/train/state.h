// Conversion between a TrainState and the named arrays of a checkpoint. Pure functions, safe from any thread.
#pragma once

#include "lockstep/engine.h"
#include "train/steps.h"

namespace lockstep::detail {

// The elements of a list, one per parameter, that belong to trained parameters.
template <class T>
std::vector<T> trained_of(const Task& task, const std::vector<T>& all) {
  std::vector<T> out;
  for (size_t i = 0; i < all.size(); ++i)
    if (task.trained[i]) out.push_back(all[i]);
  return out;
}

// The number of trained parameters that are matrices: at least that of the linear layers.
int64_t weight_matrices(const Task& task);

Checkpoint to_checkpoint(const TrainState& state, const Task& task, const Optimizer& optimizer);

// The sharding that a run gives an array of a checkpoint. Undefined if the model has no such array or its type differs.
NamedSharding sharding_of(const std::string& name, const Type& type, const Task& task, const Optimizer& optimizer,
                          const TrainShardings& shardings);

// The parameters of a checkpoint; averages of those that have one. Throws Error as from_checkpoint() does.
std::vector<Array> params_of(const Checkpoint& checkpoint, const Task& task);

// A checkpoint of step 0 may have parameters only. Throws Error when the checkpoint is of another model, optimizer or precision, naming the array that is missing or has
// another type.
TrainState from_checkpoint(const Checkpoint& checkpoint, const Task& task, const EngineOptions& options);

}  // namespace lockstep::detail
