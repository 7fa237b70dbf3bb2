// What a whole kernel does before the one before it is done: rows of images are chosen and scaled for the next step by
// blocks that have nothing to do any more in the last one.
//
// Why that is right. A kernel is started when all blocks of the one before are in their last phase, and these have
// waited for what was before them (griddepcontrol.wait): only that one kernel can be under way. Where it is the same
// kernel, launched before, it is known what it writes (may_begin()). What goes ahead reads nothing of that, and writes
// to memory of its own, of which there are two, by turns: the one kernel reads its rows to the end. Of the words in
// which blocks count each other a kernel touches none in its last phase; and no block waits for one of a later kernel.
//
// Pure; safe from any thread.
#pragma once

#include "plan/whole_kernel.h"

namespace lockstep::detail {

// Parts, all of the first phase, that need nothing the kernel writes but each other's results, and whose results only
// parts read: by part. None where there is but one phase.
std::vector<bool> may_go_ahead(std::span<const WholePart> parts, std::span<const Phase> phases);

class Ahead {
 public:
  // Memory, from its first byte to after its last.
  struct Bytes {
    const std::byte *begin = nullptr, *end = nullptr;
  };

  // Where the first phase has tasks of such parts that are worth it.
  static std::optional<Ahead> of(std::span<const WholePart> parts, std::span<const Phase> phases);

  // The tasks of the first phase that go ahead, and those that wait until the kernel before is done.
  Phase first(const Phase& phase) const;
  Phase others(const Phase& phase) const;

  // Where the operand or result of a part is in memory of its own, if it is.
  std::optional<int64_t> offset(size_t part, const CudaStep::Argument& argument) const;
  int64_t bytes() const { return bytes_; }

  // What a launch writes, and whether the next may begin before that is written. Pointers are those of the kernel's
  // operands and results.
  void written(void* const* out, std::vector<Bytes>& all) const;
  bool may_begin(const void* const* in, std::span<const Bytes> written) const;

 private:
  struct Moved {
    std::vector<std::optional<int64_t>> in, out;
  };
  std::vector<bool> goes_;    // by part
  std::vector<Moved> moved_;  // by part
  int64_t bytes_ = 0;
  std::vector<std::pair<size_t, int64_t>> reads_, writes_;  // operands and results, and their bytes
};

}  // namespace lockstep::detail
