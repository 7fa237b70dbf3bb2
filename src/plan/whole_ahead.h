// What a whole kernel brings to its blocks' memory before the kernel before it is done: rows of images, chosen and
// scaled, for the first product of the next step; where weights stay the same, those, too.
//
// Why that is right. Blocks of a kernel start when all blocks of the one before are in their last phase or done, and
// these have waited for all that was before them (griddepcontrol.wait): only that one kernel can be under way. Where it
// is the same kernel, launched before, it is known what it writes (may_begin()), and what is brought is nothing of
// that. Nor is it what this launch writes, as other blocks may do by then. It goes to the block's own memory, which
// nobody else sees. A kernel that does several rounds brings the same for the next while blocks wait for each other.
//
// Pure; safe from any thread.
#pragma once

#include "plan/whole_kernel.h"

namespace lockstep::detail {

class Ahead {
 public:
  // Memory, from its first byte to after its last.
  struct Bytes {
    const std::byte *begin = nullptr, *end = nullptr;
  };

  // Where the first phase can be brought anything (CudaStep::early) that no part writes; with `steps`, which is not
  // what a part wrote a round before either.
  static std::optional<Ahead> of(std::span<const WholePart> parts, std::span<const Phase> phases,
                                 const WholeSteps* steps = nullptr);

  // What a task of the first phase is brought, by bits.
  uint32_t early(const Task& task) const { return early_[task[0].part]; }

  // What a launch writes, and whether the next may begin before that is written. Pointers are those of the kernel's
  // operands and results.
  void written(void* const* out, std::vector<Bytes>& all) const;
  bool may_begin(const void* const* in, std::span<const Bytes> written) const;

 private:
  std::vector<uint32_t> early_;                             // by part
  std::vector<std::pair<size_t, int64_t>> reads_, writes_;  // operands and results, and their bytes
};

}  // namespace lockstep::detail
