// Sub-programs on the GPU that one kernel does several times over, so that nothing is started in between. Safe from any
// thread, but one at a time runs a kernel.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "program/op.h"

namespace lockstep {

// How far the pointers to operands and results move from one round to the next, in bytes; none for those that are the
// same in all of them. The first `carries` results, which move by 0, are the operands of the same numbers in the next
// round.
struct CudaRounds {
  int64_t count = 0;
  size_t carries = 0;
  std::vector<std::optional<int64_t>> in_steps, out_steps;
};

struct RoundsKernel {
  // By carry: is the result written over the operand? Its pointers are then the same in all rounds.
  std::vector<bool> in_place;
  // The pointers of round 0, as moved for the even ones, and of the odd ones as if they began at round 0.
  std::function<void(const void* const* in, void* const* out, const void* const* odd_in, void* const* odd_out)> run;
};

// What a KernelSpec's `compile` makes for a GPU. std::function's target() finds it.
struct SubProgram {
  Kernel run;
  // Nothing where a round has to be queued after the other.
  std::function<std::optional<RoundsKernel>(const CudaRounds&)> rounds;

  void operator()(const void* const* in, void* const* out) const { run(in, out); }
};

}  // namespace lockstep
