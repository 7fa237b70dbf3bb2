// What is computed of a gradient as soon as its part is there. An optimizer's updates stand at the end of a program;
// until then the parts of all gradients would have to be kept. Moved up to where their gradient has been scattered, it
// is gone before the next one comes. Part of a schedule: decided from the program of lane 0. A pure function, safe from
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace lockstep {

struct SettleOptions {
  // Parts of this size or more; what follows from smaller ones stays where it is.
  int64_t least_bytes = 16 << 10;
  // A scatter is given the time of so many costly equations.
  size_t wait = 1;
};

// The order of the equations in which those that follow from scattered parts and inputs alone (elementwise ones, views,
// and those whose results are small, as norms are) come as soon as they can; but after the last other use of the inputs
// that they read, whose memory may be theirs to write to. Where an update waits for all gradients, as one that is
// clipped by their norm, it stays.
std::vector<size_t> settled(const Program& lane0, const SettleOptions& options = {});

}  // namespace lockstep
