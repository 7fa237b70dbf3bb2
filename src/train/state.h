// Conversion between a TrainState and the named arrays of a checkpoint. Pure functions, safe from any thread.
#pragma once

#include "lockstep/engine.h"
#include "train/steps.h"

namespace lockstep::detail {

Checkpoint to_checkpoint(const TrainState& state, const Model& model);

// The sharding that a run gives an array of a checkpoint. Undefined if the model has no such array or its type differs.
NamedSharding sharding_of(const std::string& name, const Type& type, const Model& model,
                          const TrainShardings& shardings);

// Throws Error when the checkpoint is of another model, optimizer or precision, naming the array that is missing or has
// another type.
TrainState from_checkpoint(const Checkpoint& checkpoint, const Model& model, const Optimizer& optimizer,
                           const Precision& precision);

}  // namespace lockstep::detail
