// The text of a persistent kernel. One thread block per multiprocessor runs its share of each phase; a grid barrier
// separates phases. For example, the training step of an MLP has 30 rows: gathered and scaled images, three forward
// products with epilogues, a dozen rows for the loss, and backward products that end in updated weights. After all
// rewrites they make four or five phases.
//
// The kernel's function `f` takes a structure of all pointers and the counter of the grid barrier, which is 0 before
// the first launch. A third parameter is the number of rounds, or whether it may prefetch ahead. Pure functions, safe
// from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/cuda/prefetch_ahead.h"
#include "plan/cuda/rewrites.h"
#include "plan/cuda/schedule.h"

namespace lockstep::detail {

// A pointer that a kernel takes: to a value, or to a workspace of a step.
struct KernelPointer {
  enum Kind : uint8_t { operand, result, workspace } kind;
  TaskValue value = {};        // of an operand or result
  size_t step = 0, index = 0;  // of a workspace: the number of the step, and the index in CudaStep::workspaces
  int64_t bytes = 0;           // of a workspace
};

// The pointers of a kernel, step by step in the order of the steps' parameters. They do not depend on phases.
std::vector<KernelPointer> pointers_of(const KernelSchedule& kernel);
// Their number, at most cost_model::kMostPointers for a kernel that can be launched. Reductions that have not been
// split count with both tasks.
size_t pointer_count(const KernelSchedule& kernel);
// The values to which they point, each once, in order of first appearance.
std::vector<TaskValue> values_of(const std::vector<KernelPointer>& pointers);

struct KernelTextOptions {
  int64_t processors = 132;  // thread blocks of the kernel
  bool near = true;          // copy the pointers to shared memory
  // Repeat the phases for several rounds. The structure then has the pointers that move a second time, for odd rounds.
  // If there is a condition, the third parameter points to the number of rounds, which the kernel writes.
  // The last phase overlaps the next round where that is possible; REQUIRES: overlap_rounds() with these strides.
  const RoundStrides* rounds = nullptr;
  // Prefetch for the first phase before the previous round has ended; without rounds: before the previous kernel has
  // ended, if a flag argument says so.
  const AheadPrefetch* ahead = nullptr;
};

struct KernelText {
  std::string text;
  std::vector<KernelPointer> pointers;
  int64_t shared_bytes = 0;     // dynamic shared memory of a thread block
  bool register_bound = false;  // threads of a step have no free registers
};

// REQUIRES: phases.
KernelText kernel_text(const KernelSchedule& kernel, const KernelTextOptions& options);

// Whether pointers should be copied to shared memory: that makes for less code, but takes registers, and there has to
// be room.
bool has_room_for_pointers(const KernelSchedule& kernel, int64_t shared_bytes);

}  // namespace lockstep::detail
