// Moves the updates of an optimizer from the end of a program to where their gradients have been scattered. Otherwise
// the pieces of all gradients would have to be kept until the end. Part of a schedule: chosen from the program of lane
// 0. A pure function, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace lockstep {

struct EarlyUpdateOptions {
  // Equations on scattered pieces smaller than this do not move.
  int64_t min_bytes = 16 << 10;
  // The number of expensive equations between a scatter and the equations that use it, to hide its latency.
  size_t scatter_wait = 1;
};

// Returns an order of the equations. Equations that depend only on scattered pieces and inputs come as early as
// possible, if they are elementwise, views, or have small results (norms). But they come after the last other use of
// the inputs that they read, because they may overwrite that memory. An update that depends on all gradients, such as
// one clipped by their norm, does not move.
std::vector<size_t> order_updates_early(const Program& lane0, const EarlyUpdateOptions& options = {});

}  // namespace lockstep
