// Sub-programs (the body of a scan) that one kernel executes several times, without a launch in between. Safe from any
// thread, but only one thread at a time may run a kernel.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "program/op.h"

namespace lockstep {

// How far the pointers to operands and results advance from one round to the next, in bytes; absent: the same in every
// round. The first `carries` results, which advance by 0, are the operands with the same numbers in the next round.
struct CudaRounds {
  int64_t count = 0;
  size_t carries = 0;
  std::vector<std::optional<int64_t>> in_steps, out_steps;
  // The number of a bool result that says whether another round follows, instead of the count. It advances by 0. For
  // round 0 the condition is read where odd rounds write it. The kernel writes the number of rounds to `executed`.
  std::optional<size_t> condition = {};
  uint32_t* executed = nullptr;
};

struct RoundsKernel {
  // By carry: whether the result is written over the operand. Then its pointers are the same in all rounds.
  std::vector<bool> in_place;
  // Arguments: the pointers of round 0 for the even rounds, and for the odd rounds as if they began at round 0.
  std::function<void(const void* const* in, void* const* out, const void* const* odd_in, void* const* odd_out)> run;
};

// The sub-program that a KernelSpec's `compile` returns for a GPU. Found with std::function's target().
struct SubProgram {
  Kernel run;
  // Returns nullopt if each round must be launched separately. REQUIRES: called while the kernel of the row is prepared.
  std::function<std::optional<RoundsKernel>(const CudaRounds&)> rounds;

  void operator()(const void* const* in, void* const* out) const { run(in, out); }
};

}  // namespace lockstep
