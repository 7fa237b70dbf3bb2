#include "plan/cuda/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/check.h"

namespace lockstep::detail {

std::vector<TaskValue> KernelSchedule::inputs() const {
  std::set<ValueId> written, seen;
  std::vector<TaskValue> out;
  const auto visit = [&](const auto& self, const GpuTask& task) -> void {
    for (const GpuTask& member : task.members) self(self, member);
    if (task.form != TaskForm::row) return;
    for (const TaskValue& value : operands(task))
      if (value.id != kNoValue && !written.contains(value.id) && seen.insert(value.id).second) out.push_back(value);
    for (const TaskValue& value : results(task)) written.insert(value.id);
  };
  if (phases.empty())
    for (const GpuTask& task : tasks) visit(visit, task);
  for (const std::vector<size_t>& phase : phases)
    for (const size_t t : phase) visit(visit, tasks[t]);
  return out;
}

ValueId unused_value(const KernelSchedule& kernel) {
  ValueId next = 0;
  const auto visit = [&](const auto& self, const GpuTask& task) -> void {
    for (const auto* values : {&task.in, &task.out})
      for (const TaskValue& value : *values)
        for (const ValueId id : {value.id, value.memory})
          if (id != kNoValue) next = std::max(next, id + 1);
    for (const GpuTask& member : task.members) self(self, member);
    for (const GpuTask& member : task.column_sums) self(self, member);
    for (const GpuTask::Producer& producer : task.producers) self(self, producer.task);
  };
  for (const GpuTask& task : kernel.tasks) visit(visit, task);
  for (const ValueId id : kernel.needed) next = std::max(next, id + 1);
  return std::max(next, kernel.next_value);
}

namespace {

// Checks a kernel in the order of execution.
class ScheduleChecker {
 public:
  explicit ScheduleChecker(const KernelSchedule& kernel) : kernel_(kernel) {
    if (!kernel.phases.empty()) check_phases();
    std::set<ValueId> written;
    for (const GpuTask& task : kernel.tasks)
      for (const TaskValue& value : results(task)) written.insert(value.id);
    for (const TaskValue& value : kernel.inputs())
      if (!written.contains(value.id)) holds_[value.memory] = value.id;
  }

  void run() {
    if (kernel_.phases.empty())
      for (const GpuTask& task : kernel_.tasks) execute(task);
    for (const std::vector<size_t>& phase : kernel_.phases)
      for (const size_t t : phase) execute(kernel_.tasks[t]);
    for (const ValueId id : kernel_.needed)
      if (std::none_of(holds_.begin(), holds_.end(), [&](const auto& each) { return each.second == id; }))
        throw_error("schedule: the kernel returns %{}, which is not written or was overwritten", id);
  }

 private:
  // All tasks are in one phase each, and those of a phase are independent.
  void check_phases() const {
    std::vector<int> times(kernel_.tasks.size(), 0);
    for (const std::vector<size_t>& phase : kernel_.phases)
      for (const size_t t : phase)
        if (t >= times.size() || ++times[t] > 1) throw_error("schedule: task {} is not in exactly one phase", t);
    if (std::count(times.begin(), times.end(), 0) > 0) throw_error("schedule: a task has no phase");
    for (const std::vector<size_t>& phase : kernel_.phases)
      for (const size_t t : phase)
        for (const size_t other : phase)
          if (other < t && conflict(kernel_.tasks[t], kernel_.tasks[other]))
            throw_error("schedule: tasks {} and {} of one phase depend on each other", other, t);
  }

  void execute(const GpuTask& task) {
    if (task.form != TaskForm::row) {
      for (const GpuTask& member : task.members) execute(member);
      return;
    }
    for (const TaskValue& value : operands(task)) {
      if (value.id == kNoValue || value.bytes() == 0) continue;
      const auto found = holds_.find(value.memory);
      if (found == holds_.end() || found->second != value.id)
        throw_error("schedule: {} reads %{}, which is not written yet or was overwritten", task.op->name, value.id);
    }
    for (const TaskValue& value : results(task)) holds_[value.memory] = value.id;
  }

  const KernelSchedule& kernel_;
  std::map<ValueId, ValueId> holds_;  // by memory: the value in it
};

}  // namespace

void check(const KernelSchedule& kernel) { ScheduleChecker(kernel).run(); }

}  // namespace lockstep::detail
