// What parts of one kernel become when several of them are done by the same block, one after the other: their operands
// and results in one row, and their texts as functions within one. Pure functions.
#pragma once

#include <string>

#include "plan/whole_kernel.h"

namespace lockstep::detail {

// Parts with their kernels, for as long as something may be made of them anew.
struct OwnParts {
  std::deque<SteppedKernel> kernels;
  std::vector<WholePart> parts;

  explicit OwnParts(std::span<const WholePart> all);
  OwnParts(const OwnParts&) = delete;
};

// Does a range of the part need its own range only of that operand?
bool owns(const WholePart& part, size_t operand);

// Operands and results of all of them, one part's after the other's. Without a kernel.
WholePart side_by_side(std::span<const WholePart* const> parts);

// The parameters of a member's function, of no type: ", const char* q0, char* q1".
std::string untyped_parameters(const CudaStep& step);

// Copies from the GPU's memory to the block's, all threads together, to be waited for by wait_for<0>() ("tiles.h"): as
// many bytes at a time as suits where they begin, which is at a multiple of sixteen.
std::string copy_near_text(int64_t bytes, const std::string& to, const std::string& from);

// Parts of a block's memory begin at multiples of this.
inline int64_t up_to_16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace lockstep::detail
