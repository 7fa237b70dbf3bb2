// Sub-programs on the GPU that one kernel does several times over, so that nothing is started in between. Safe from any
// thread, but one at a time runs a kernel.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "program/op.h"

namespace lockstep {

// How far the pointers to operands and results move from one round to the next, in bytes.
struct CudaRounds {
  int64_t count = 0;
  std::vector<int64_t> in_steps, out_steps;
};

// The pointers of round 0, as moved for the even ones, and of the odd ones as if they began at round 0.
using RoundsKernel =
    std::function<void(const void* const* in, void* const* out, const void* const* odd_in, void* const* odd_out)>;

// What a KernelSpec's `compile` makes for a GPU. std::function's target() finds it.
struct SubProgram {
  Kernel run;
  // Nothing where a round has to be queued after the other.
  std::function<RoundsKernel(const CudaRounds&)> rounds;

  void operator()(const void* const* in, void* const* out) const { run(in, out); }
};

}  // namespace lockstep
