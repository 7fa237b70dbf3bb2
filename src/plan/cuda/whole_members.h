// Helpers for merging parts that the same block runs one after another: concatenates their operands and results, and
// turns their texts into functions of one kernel. Pure functions, safe from any thread.
#pragma once

#include <string>

#include "plan/cuda/whole_kernel.h"

namespace lockstep::detail {

// Parts with copies of their kernels, for later merges.
struct OwnParts {
  std::deque<SteppedKernel> kernels;
  std::vector<KernelPart> parts;

  explicit OwnParts(std::span<const KernelPart> all);
  OwnParts(const OwnParts&) = delete;
};

// Whether a range of the part reads only the same range of that operand.
bool owns(const KernelPart& part, size_t operand);

// A part without a kernel that has the operands and results of all parts, in order.
KernelPart side_by_side(std::span<const KernelPart* const> parts);

// The parameters of a member's function, as untyped pointers: ", const char* q0, char* q1".
std::string untyped_parameters(const CudaStep& step);

// Text that copies from global to shared memory with all threads, asynchronously; wait_for<0>() waits for
// it. The shared memory is aligned to 16 bytes; the width of a copy suits the alignment of `from`.
std::string copy_to_shared_text(int64_t bytes, const std::string& to, const std::string& from);

// Rounds up to the alignment of areas in shared memory.
inline int64_t up_to_16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace lockstep::detail
