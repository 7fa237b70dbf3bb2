// Overlap of rounds, in a kernel that repeats its phases for several rounds (a scan). If the last phase is small, for
// example adds up metrics, then the last thread blocks run it beside the first phase of the next round. That saves a
// grid barrier in each round. Pure functions, safe from any thread.
#pragma once

#include "plan/cuda/rewrites.h"

namespace lockstep::detail {

// Whether the last phase consists of a few small tasks that are independent of the first phase and of values that
// alternate between two buffers. Always false if a condition decides whether there is a next round.
bool overlaps_next_round(const KernelSchedule& kernel, const RoundStrides& strides);

// Moves small tasks from the first phase to the second if that makes overlaps_next_round() true. If it is true, the
// second phase then prefetches nothing that the last phase writes. Otherwise the kernel does not change.
// REQUIRES: phases.
void overlap_rounds(KernelSchedule& kernel, const RoundStrides& strides, const GpuTarget& target);

}  // namespace lockstep::detail
