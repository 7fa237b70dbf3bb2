// Rewrites of a persistent kernel's schedule. Each is one file in plan/cuda/rewrites/ and one row of all_rewrites().
// A rewrite changes which tasks there are, or how they are divided and ordered; it never changes what the kernel
// computes. It runs before memory is assigned. Pure functions, safe from any thread.
//
// To add a rewrite: write its file, declare its function below, add its row in rewrites.cc and to
// docs/notes/gpu-schedule.md, and test it with a text before and a text after (tests/plan/rewrite_NAME_test.cc).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plan/cuda/schedule.h"

namespace lockstep::detail {

// How far the pointers to values advance from one round of a repeated kernel (a scan) to the next, in bytes. Values
// that are not listed stay. A value that advances by 0 alternates between two buffers from round to round.
struct RoundStrides {
  struct Stride {
    ValueId memory;
    int64_t bytes;
  };
  std::vector<Stride> all;
  std::optional<ValueId> condition = {};  // the memory of the result that says whether another round follows
  std::optional<int64_t> of(const TaskValue& value) const;
};

// Fusions. They need no phases; all tasks are rows, except where a comment says otherwise.

// A product whose result is only summed up adds up the elements itself and does not write them; the sum of all then
// adds up kPartialSums floats.
void fuse_full_sums(KernelSchedule& kernel, const GpuTarget& target);
// Tasks compute operands themselves instead of reading them, if that is less work: for example gathered and scaled rows
// of images, or rounded weights (producer fusion).
void inline_producers(KernelSchedule& kernel, const GpuTarget& target);
// A product by a matrix also adds up the matrix's columns (a bias gradient) and runs what is computed from the sums.
void fuse_column_sums(KernelSchedule& kernel, const GpuTarget& target);
// Orders the tasks, and fuses those that a thread block can run one after another, range by range, without grid
// barriers (TaskForm::ranges).
void fuse_ranges(KernelSchedule& kernel, const GpuTarget& target);
// Fuses a product in tiles with the ranges after it, which need complete rows of it (TaskForm::exchange).
void fuse_exchange(KernelSchedule& kernel, const GpuTarget& target);

// Order in time.

// Replaces reductions that need two tasks by these two.
void split_reductions(KernelSchedule& kernel, const GpuTarget& target);
// Gives every task the earliest possible phase. Small tasks that depend on each other become a chain of one thread
// block; tasks whose threads need only their own elements of the task before become one task (TaskForm::elements).
void assign_phases(KernelSchedule& kernel, const GpuTarget& target);
// Moves small tasks out of a phase whose products use all of the GPU, to a later such phase, if nothing needs them
// earlier. REQUIRES: phases.
void balance_phases(KernelSchedule& kernel, const GpuTarget& target);
// Divides the multiprocessors among the tasks of each phase: small tasks get what large ones leave. REQUIRES: phases.
void assign_processors(KernelSchedule& kernel, const GpuTarget& target);
// Marks operands that thread blocks prefetch while they wait for a phase (GpuTask::prefetched), from the second phase
// on. REQUIRES: phases.
void prefetch_operands(KernelSchedule& kernel, const GpuTarget& target);

// One row per rewrite. A test or a user switches them off by name (rewrite_enabled()).
struct Rewrite {
  std::string_view name;
  void (*run)(KernelSchedule&, const GpuTarget&);
  std::string_view purpose;  // as in docs/notes/gpu-schedule.md
  bool optional = true;      // off: the kernel is slower, but correct
};
std::span<const Rewrite> all_rewrites();

// Runs all enabled rewrites, as far as the kernel's pointers still fit.
void optimize(KernelSchedule& kernel, const GpuTarget& target);

// Whether the rewrite of this name is switched on. All are unless a RewritesOff exists in this thread.
bool rewrite_enabled(std::string_view name);
class RewritesOff {
 public:
  explicit RewritesOff(std::vector<std::string> names);
  ~RewritesOff();
  RewritesOff(const RewritesOff&) = delete;
  RewritesOff& operator=(const RewritesOff&) = delete;

 private:
  std::vector<std::string> before_;
};

}  // namespace lockstep::detail
