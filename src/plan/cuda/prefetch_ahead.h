// AheadPrefetch: what a persistent kernel prefetches into shared memory before the previous kernel has ended: rows of
// images for the first product of the next step, and weights that do not change.
//
// Why this is correct. The thread blocks of a kernel start when all thread blocks of the previous kernel are in their
// last phase or done, and those have waited for everything before them (griddepcontrol.wait). So only the previous
// kernel can still be running. If it is a launch of the same kernel, its writes are known (may_start_early()), and the
// prefetch reads none of them. The prefetch also reads nothing that this launch writes, because other thread blocks may
// already write it. It goes to the thread block's shared memory, which no other thread block sees. A kernel of several
// rounds prefetches for the next round while thread blocks wait at the grid barrier.
//
// Pure functions and immutable values, safe from any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/cuda/rewrites.h"
#include "plan/cuda/schedule.h"

namespace lockstep::detail {

class AheadPrefetch {
 public:
  // A range of memory [begin, end).
  struct Bytes {
    const std::byte *begin = nullptr, *end = nullptr;
  };

  // Returns nullopt unless the first phase has prefetchable operands (CudaStep::prefetches) that no task writes; with
  // `rounds`, that no task wrote in the previous round either. `values` are the kernel's values, by which pointers are
  // given below; results that are not among them stay in shared memory.
  static std::optional<AheadPrefetch> of(const KernelSchedule& kernel, std::span<const TaskValue> values,
                                         const RoundStrides* rounds = nullptr);

  // Bitmask of the prefetched operands of a task of the first phase, given by its index.
  uint32_t prefetched(size_t task) const { return prefetched_[task]; }

  // Sets `all` to what a launch with these pointers writes; and whether the next launch, with these pointers, may
  // prefetch before that is written.
  void written(void* const* values, std::vector<Bytes>& all) const;
  bool may_start_early(void* const* values, std::span<const Bytes> written) const;

 private:
  std::vector<uint32_t> prefetched_;                        // by task
  std::vector<std::pair<size_t, int64_t>> reads_, writes_;  // values, and their bytes
};

}  // namespace lockstep::detail
