// LocalProgram: a program on one lane, whether it is the only lane of a computation or one of many, with the buffers of
// a call. One thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "lane/lane.h"
#include "program/program.h"

namespace lockstep::detail {

class LocalProgram {
 public:
  // REQUIRES: `program` came from lower(). The lane outlives it.
  LocalProgram(Lane& lane, Program program, const PlanOptions& options);

  Lane& lane() const { return lane_; }
  const Program& lowered() const { return lowered_; }
  const LanePlan& plan() const { return *plan_; }

  // Sets input i of the next run: memory of the lane from `data` on, which is inside of `buffer`.
  void set_input(size_t i, BufferPtr buffer, const void* data) {
    held_[i] = std::move(buffer);
    in_[i] = data;
  }
  void set_input(size_t i, BufferPtr buffer) {
    const void* const data = buffer->data();
    set_input(i, std::move(buffer), data);
  }
  const BufferPtr& input(size_t i) const { return held_[i]; }

  // Runs the program, or enqueues it. Results are allocated before anything is written, so that running out of memory
  // leaves the inputs unchanged. A call allocates nothing else.
  void run();
  // The buffer of result j of the last run. Call it once.
  BufferPtr take_result(size_t j) { return std::move(made_[j]); }
  // Drops the buffers of a run.
  void release_buffers();

 private:
  Lane& lane_;
  const Program lowered_;
  const std::unique_ptr<LanePlan> plan_;
  std::vector<int64_t> out_bytes_;
  std::vector<BufferPtr> held_, made_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

}  // namespace lockstep::detail
