// Values that must be equal in all processes of a job: settings and data. The compiled program is compared elsewhere.
// Used by the main thread only.
#pragma once

#include "train/problem.h"

namespace lockstep {

class Session;

// Throws Error in all processes when a value differs between them; names the first one. REQUIRES: all processes call it.
void check_same_facts(Session& session, const TrainConfig& config, const Problem& problem);

}  // namespace lockstep
