// What the metrics say of the lanes that compute the steps. Safe from any thread.
#pragma once

#include <vector>

#include "lockstep/engine.h"
#include "plan/lanes.h"

namespace lockstep::detail {

// The lanes of this process that compute the steps. Others may not have been made, and stay so.
std::vector<Lane*> used_lanes(const Mesh& mesh);

// Peak operations per second of the lanes of this process; 0: unknown.
double peak_of(const std::vector<Lane*>& lanes, const EngineOptions& options);

// Appends the bytes that are in use on the lanes with memory of their own, else the largest resident set of the process.
void append_memory(Scalars& out, const std::vector<Lane*>& lanes);

}  // namespace lockstep::detail
