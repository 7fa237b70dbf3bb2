// Phases of a persistent kernel's tasks: what the rewrites that order tasks in time share. Pure functions, safe from
// any thread.
#pragma once

#include <span>
#include <vector>

#include "plan/cuda/schedule.h"

namespace lockstep::detail {

// Of form chain or elements: the task has no step of its own, its members have.
bool is_composite(const GpuTask& task);

// The step of a task; of a composite task, that of its first member. REQUIRES: lowered.
const CudaStep& first_step(const GpuTask& task);

// Multiplications and additions of the products of a task, with those of all members.
double operations_of(const GpuTask& task);

// Thread blocks that a task occupies: one if it is a chain.
int64_t thread_blocks_of(const GpuTask& task);

// Dissolves composite tasks and removes the phases. The tasks are in the order that they had before phases were first
// assigned (GpuTask::position), or else in the order of their phases.
void remove_phases(KernelSchedule& kernel);

// Orders the tasks of a phase: what takes longest comes first. Chains, which one thread block runs, are followed by
// products in the order of their work per thread block.
void sort_longest_first(const std::vector<GpuTask>& tasks, std::vector<size_t>& phase);

// Bitmask of the task's prefetchable operands (CudaStep::prefetches) that are not in the memory of `written`. Composite
// tasks have none.
uint32_t prefetchable_operands(const GpuTask& task, const std::vector<TaskValue>& written);

// Sets GpuTask::prefetched for all phases. `overlapped`: the last phase runs beside the first phase of the next round.
void set_prefetched(KernelSchedule& kernel, bool overlapped);

// Finds phases for a list of tasks without composite ones.
class PhaseAssigner {
 public:
  // Tasks that become one composite task, or a single one; indices in execution order.
  using Group = std::vector<size_t>;
  using Phases = std::vector<std::vector<Group>>;

  // `tasks` must outlive it.
  explicit PhaseAssigner(const std::vector<GpuTask>& tasks);

  // The earliest possible phases, the longest tasks of each first. `earliest`: no task is in a phase before the one
  // with this number; empty: any may be.
  Phases assign(std::span<const size_t> earliest = {}) const;

  bool is_small(size_t task) const { return small_[task]; }
  double operations(const Group& group) const;

 private:
  // The phase of task `t`, if those before it are in `phase`.
  size_t phase_of(size_t t, const std::vector<size_t>& phase) const;
  Phases grouped(const std::vector<size_t>& phase, size_t phases) const;

  const std::vector<GpuTask>& tasks_;
  std::vector<bool> small_;
  std::vector<std::vector<size_t>> before_;  // by task: earlier tasks that must be done first
};

// Replaces the tasks of a kernel without phases by these phases. Groups become composite tasks.
void set_phases(KernelSchedule& kernel, const PhaseAssigner::Phases& phases);

}  // namespace lockstep::detail
