// AheadPrefetch: what a persistent kernel prefetches into shared memory before the previous kernel has ended: rows of
// images for the first product of the next step, and weights that do not change.
//
// Why this is correct. The blocks of a kernel start when all blocks of the previous kernel are in their last phase or
// done, and those have waited for everything before them (griddepcontrol.wait). So only the previous kernel can still
// be running. If it is a launch of the same kernel, its writes are known (may_start_early()), and the prefetch reads
// none of them. The prefetch also reads nothing that this launch writes, because other blocks may already write it. It
// goes to the block's shared memory, which no other block sees. A kernel of several rounds prefetches for the next
// round while blocks wait at the grid barrier.
//
// Pure functions and immutable values, safe from any thread.
#pragma once

#include "plan/cuda/whole_kernel.h"

namespace lockstep::detail {

class AheadPrefetch {
 public:
  // A range of memory [begin, end).
  struct Bytes {
    const std::byte *begin = nullptr, *end = nullptr;
  };

  // Returns nullopt unless the first phase has prefetchable operands (CudaStep::early) that no part writes; with
  // `steps`, that no part wrote in the previous round either.
  static std::optional<AheadPrefetch> of(std::span<const KernelPart> parts, std::span<const Phase> phases,
                                         const RoundStrides* steps = nullptr);

  // Bitmask of the prefetched operands of a task of the first phase.
  uint32_t early(const Task& task) const { return early_[task[0].part]; }

  // Appends what a launch with these results writes; and whether the next launch, with these operands, may prefetch
  // before that is written.
  void written(void* const* out, std::vector<Bytes>& all) const;
  bool may_start_early(const void* const* in, std::span<const Bytes> written) const;

 private:
  std::vector<uint32_t> early_;                             // by part
  std::vector<std::pair<size_t, int64_t>> reads_, writes_;  // operands and results, and their bytes
};

}  // namespace lockstep::detail
