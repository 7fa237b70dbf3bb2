// A training state as the arrays of a checkpoint, and back.
#pragma once

#include "lockstep/engine.h"
#include "train/steps.h"

namespace lockstep::detail {

Checkpoint to_checkpoint(const TrainState& state, const Model& model);

// How an array of a checkpoint lies in a run; undefined for one that the model does not have, or not of that type.
NamedSharding sharding_of(const std::string& name, const Type& type, const Model& model, const Layout& layout);

// Throws Error naming what the checkpoint lacks, or holds in another form, when it is one of another model, optimizer
// or precision.
TrainState from_checkpoint(const Checkpoint& checkpoint, const Model& model, const Optimizer& optimizer,
                           const Precision& precision);

}  // namespace lockstep::detail
