// A training state as the arrays of a checkpoint, and back.
#pragma once

#include "lockstep/engine.h"

namespace lockstep::detail {

Checkpoint to_checkpoint(const TrainState& state, const Model& model);

// Throws Error naming what the checkpoint lacks, or holds in another form, when it is one of another model, optimizer
// or precision.
TrainState from_checkpoint(const Checkpoint& checkpoint, const Model& model, const Optimizer& optimizer,
                           const Precision& precision);

}  // namespace lockstep::detail
