// GpuSchedule: a lowered program as GPU work. It has kernels in order. A persistent kernel has phases, which a grid barrier
// separates; the tasks of a phase (ops/cuda/task.h) run side by side on the GPU's multiprocessors. Rewrites
// (plan/cuda/rewrites.h) change a kernel before memory is assigned. A schedule prints and parses; the grammar is in
// docs/notes/gpu-schedule.md.
//
//   kernel(%0:f32[784,1024], %1:f32[60000,784], %2:i32[128]) {
//     phase {
//       %5:f32[128,1024] = einsum[spec="mk,kn->mn"] %4 %0 (tile=64x64x64, ...)
//         computes {
//           %4:f32[128,784] = gather[axis=0, batch_dims=0] %1 %2
//         }
//     }
//     return %5
//   }
//
// Plain values and pure functions: safe from any thread.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cuda/task.h"

namespace lockstep::detail {

// A kernel: one launch.
struct KernelSchedule {
  // Tasks in an order in which they can be executed.
  std::vector<GpuTask> tasks;
  // By phase: the tasks, as indices. Every task is in one phase. Empty: phases have not been assigned.
  std::vector<std::vector<size_t>> phases = {};
  std::set<ValueId> needed = {};  // values that are read after the kernel
  ValueId next_value = 0;         // no value of the program has this id or a larger one
  // Not a persistent kernel: its only task is a row with a kernel of its own (the `cuda` column of its op).
  bool library = false;
  bool on_host = false;  // of a library kernel: the row has no kernel on the GPU, so its CPU kernel runs between copies
  bool repeated = false;  // a persistent kernel that repeats its phases for all rounds of a scan, in one launch
  std::vector<std::vector<KernelSchedule>> bodies = {};  // of a library kernel: the kernels of its row's sub-programs

  // The values that it reads and does not write before, in order of first use.
  std::vector<TaskValue> inputs() const;
  bool operator==(const KernelSchedule&) const = default;
};

struct GpuSchedule {
  GpuTarget target;
  std::vector<KernelSchedule> kernels;

  bool operator==(const GpuSchedule&) const = default;
};

// `layout`: with tiles, numbers of thread blocks and shared memory.
std::string print(const KernelSchedule& kernel, bool layout = false);
std::string print(const GpuSchedule& schedule);

// Parses a text and lowers the tasks for the target. Throws Error with the line and column of a syntax error, or with
// the task whose choices are not possible.
KernelSchedule parse_kernel(std::string_view text, const GpuTarget& target);
GpuSchedule parse_schedule(std::string_view text);

// Throws Error unless every task reads only inputs of the kernel and results of tasks before it (in an earlier phase,
// or earlier in the same task), nothing is overwritten that is still read, and all tasks are in one phase each.
void check(const KernelSchedule& kernel);

// A value id that the kernel does not use.
ValueId unused_value(const KernelSchedule& kernel);

}  // namespace lockstep::detail
