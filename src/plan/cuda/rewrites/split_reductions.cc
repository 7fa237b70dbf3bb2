#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/cuda/rewrites.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {
namespace {

bool needs_two_tasks(const GpuTask& task) {
  if (is_composite(task)) return std::any_of(task.members.begin(), task.members.end(), needs_two_tasks);
  return task.stage == TaskStage::whole && task.step->partial.has_value();
}

// The task that computes the partial results, and the one that combines them.
std::pair<GpuTask, GpuTask> split_reduction(const GpuTask& task, ValueId partial, const GpuTarget& target) {
  const TaskValue value{partial, *task.step->partial, partial};
  GpuTask first = task, second;
  first.stage = TaskStage::partial;
  first.out = {value};
  second.op = task.op;
  second.attrs = task.attrs;
  second.in = {value};
  second.out = task.out;
  second.stage = TaskStage::combine;
  LOCKSTEP_CHECK(lower_row(first, target) && lower_row(second, target), "{} cannot be split", task.step->name);
  return {std::move(first), std::move(second)};
}

}  // namespace

void split_reductions(KernelSchedule& kernel, const GpuTarget& target) {
  if (std::none_of(kernel.tasks.begin(), kernel.tasks.end(), needs_two_tasks)) return;
  remove_phases(kernel);
  ValueId unused = unused_value(kernel);
  std::vector<GpuTask> tasks;
  for (GpuTask& task : kernel.tasks) {
    if (!needs_two_tasks(task)) {
      tasks.push_back(std::move(task));
      continue;
    }
    std::pair<GpuTask, GpuTask> both = split_reduction(task, unused++, target);
    tasks.push_back(std::move(both.first));
    tasks.push_back(std::move(both.second));
  }
  kernel.tasks = std::move(tasks);
}

}  // namespace lockstep::detail
