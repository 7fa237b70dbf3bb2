#include "plan/cuda/rewrites/overlap_rounds.h"

#include <algorithm>
#include <utility>

#include "ops/cuda/cost_model.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {
namespace {

bool conflicts_with(const KernelSchedule& kernel, const GpuTask& task, const std::vector<size_t>& phase) {
  return std::any_of(phase.begin(), phase.end(), [&](size_t index) { return conflict(task, kernel.tasks[index]); });
}

// All steps are small: those of a chain, or a single one.
bool is_small_task(const GpuTask& task) {
  return task.form == TaskForm::chain || (!is_composite(task) && cost_model::is_small(*task.step));
}

int64_t thread_blocks(const KernelSchedule& kernel, const std::vector<size_t>& phase) {
  int64_t out = 0;
  for (const size_t index : phase) out += thread_blocks_of(kernel.tasks[index]);
  return out;
}

}  // namespace

std::optional<int64_t> RoundStrides::of(const TaskValue& value) const {
  if (value.memory == kNoValue) return {};
  for (const Stride& each : all)
    if (each.memory == value.memory) return each.bytes;
  return {};
}

bool overlaps_next_round(const KernelSchedule& kernel, const RoundStrides& strides) {
  if (strides.condition) return false;
  if (kernel.phases.size() < 2 || kernel.phases.back().size() > cost_model::kMostOverlappedTasks) return false;
  // The next round reads such a value as the result of this one, by another name.
  const auto alternates = [&](const std::vector<TaskValue>& values) {
    return std::any_of(values.begin(), values.end(), [&](const TaskValue& value) { return strides.of(value) == 0; });
  };
  return std::all_of(kernel.phases.back().begin(), kernel.phases.back().end(), [&](size_t index) {
    const GpuTask& task = kernel.tasks[index];
    return is_small_task(task) && !conflicts_with(kernel, task, kernel.phases[0]) && !alternates(operands(task)) &&
           !alternates(results(task));
  });
}

void overlap_rounds(KernelSchedule& kernel, const RoundStrides& strides, const GpuTarget& target) {
  if (kernel.phases.size() > 2) {
    KernelSchedule trial = kernel;
    trial.phases[0].clear();
    for (const size_t index : kernel.phases[0]) {
      const GpuTask& task = kernel.tasks[index];
      const bool moves = is_small_task(task) && conflicts_with(kernel, task, kernel.phases.back()) &&
                         !conflicts_with(kernel, task, kernel.phases[1]) &&
                         thread_blocks(trial, trial.phases[1]) < target.processors;
      trial.phases[moves ? 1 : 0].push_back(index);
    }
    sort_longest_first(trial.tasks, trial.phases[1]);
    if (!trial.phases[0].empty() && overlaps_next_round(trial, strides)) kernel = std::move(trial);
  }
  if (overlaps_next_round(kernel, strides) && rewrite_enabled("prefetch_operands")) set_prefetched(kernel, true);
}

}  // namespace lockstep::detail
