#include "plan/cuda/rewrites/phases.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ops/cuda/cost_model.h"

namespace lockstep::detail {
namespace {

// Whether a thread needs nothing of the first task for its elements of the second but what it has written itself.
bool follows(const GpuTask& first, const GpuTask& second) {
  if (first.stage != TaskStage::whole || second.stage != TaskStage::whole) return false;
  const CudaStep &a = *first.step, &b = *second.step;
  if (a.elements == 0 || a.elements != b.elements || a.each != b.each || cost_model::is_small(a)) return false;
  const std::vector<TaskValue> written = results(first), later = results(second);
  for (const TaskValue& each : later)
    if (contains_memory(written, each) || contains_memory(operands(first), each)) return false;
  const std::vector<TaskValue> read = operands(second);
  for (size_t i = 0; i < read.size(); ++i)
    if (contains_memory(written, read[i]) && std::find(b.in_place.begin(), b.in_place.end(), i) == b.in_place.end())
      return false;
  return true;
}

// How long a thread block works on a task: by this, tasks are ordered.
double time_per_block(const CudaStep& first, bool is_chain) {
  return is_chain ? HUGE_VAL : first.operations / static_cast<double>(std::max<int64_t>(first.blocks, 1));
}

}  // namespace

bool is_composite(const GpuTask& task) { return task.form == TaskForm::chain || task.form == TaskForm::elements; }

const CudaStep& first_step(const GpuTask& task) { return *(is_composite(task) ? task.members[0] : task).step; }

double operations_of(const GpuTask& task) {
  if (!is_composite(task)) return task.step->operations;
  return std::accumulate(task.members.begin(), task.members.end(), 0.0,
                         [](double sum, const GpuTask& member) { return sum + member.step->operations; });
}

int64_t thread_blocks_of(const GpuTask& task) { return task.form == TaskForm::chain ? 1 : first_step(task).blocks; }

void remove_phases(KernelSchedule& kernel) {
  const bool had_phases = !kernel.phases.empty();
  std::vector<size_t> order;
  for (const std::vector<size_t>& phase : kernel.phases) order.insert(order.end(), phase.begin(), phase.end());
  if (!had_phases) {
    order.resize(kernel.tasks.size());
    std::iota(order.begin(), order.end(), size_t{0});
  }
  std::vector<GpuTask> tasks;
  for (const size_t index : order) {
    GpuTask& task = kernel.tasks[index];
    if (is_composite(task))
      std::move(task.members.begin(), task.members.end(), std::back_inserter(tasks));
    else
      tasks.push_back(std::move(task));
  }
  if (had_phases)
    std::stable_sort(tasks.begin(), tasks.end(),
                     [](const GpuTask& a, const GpuTask& b) { return a.position < b.position; });
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].position = i;
    tasks[i].prefetched = 0;
  }
  kernel.tasks = std::move(tasks);
  kernel.phases.clear();
}

void sort_longest_first(const std::vector<GpuTask>& tasks, std::vector<size_t>& phase) {
  const auto weight = [&](size_t index) {
    return time_per_block(first_step(tasks[index]), tasks[index].form == TaskForm::chain);
  };
  std::stable_sort(phase.begin(), phase.end(), [&](size_t a, size_t b) { return weight(a) > weight(b); });
}

uint32_t prefetchable_operands(const GpuTask& task, const std::vector<TaskValue>& written) {
  if (is_composite(task)) return 0;
  const std::vector<CudaStep::Prefetch>& all = task.step->prefetches;
  const std::vector<TaskValue> in = operands(task);
  const auto is_written = [&](size_t operand) { return contains_memory(written, in[operand]); };
  uint32_t out = 0;
  for (size_t k = 0; k < all.size(); ++k)
    if (std::none_of(all[k].operands.begin(), all[k].operands.end(), is_written)) out |= 1u << k;
  return out;
}

void set_prefetched(KernelSchedule& kernel, bool overlapped) {
  for (size_t i = 0; i < kernel.phases.size(); ++i) {
    std::vector<TaskValue> written;
    const auto add_results = [&](const std::vector<size_t>& phase) {
      for (const size_t index : phase) {
        const std::vector<TaskValue> more = results(kernel.tasks[index]);
        written.insert(written.end(), more.begin(), more.end());
      }
    };
    if (i > 0) add_results(kernel.phases[i - 1]);
    if (overlapped && i == 1) add_results(kernel.phases.back());
    for (const size_t index : kernel.phases[i]) {
      GpuTask& task = kernel.tasks[index];
      task.prefetched = i > 0 ? prefetchable_operands(task, written) : 0;
    }
  }
}

PhaseAssigner::PhaseAssigner(const std::vector<GpuTask>& tasks) : tasks_(tasks) {
  std::vector<std::vector<TaskValue>> read, written;
  const auto any_common = [](const std::vector<TaskValue>& x, const std::vector<TaskValue>& y) {
    return std::any_of(x.begin(), x.end(), [&](const TaskValue& one) { return contains_memory(y, one); });
  };
  for (size_t t = 0; t < tasks.size(); ++t) {
    small_.push_back(cost_model::is_small(*tasks[t].step));
    read.push_back(operands(tasks[t]));
    written.push_back(results(tasks[t]));
    before_.emplace_back();
    for (size_t i = 0; i < t; ++i)
      if (any_common(written[i], read[t]) || any_common(written[i], written[t]) || any_common(read[i], written[t]))
        before_[t].push_back(i);
  }
}

double PhaseAssigner::operations(const Group& group) const {
  return std::accumulate(group.begin(), group.end(), 0.0,
                         [&](double sum, size_t task) { return sum + tasks_[task].step->operations; });
}

size_t PhaseAssigner::phase_of(size_t t, const std::vector<size_t>& phase) const {
  size_t own = 0, last = 0;  // `last`: of the tasks before it
  for (const size_t i : before_[t]) {
    own = std::max(own, phase[i] + (small_[t] && small_[i] ? 0 : 1));
    last = std::max(last, phase[i]);
  }
  // It may share the last phase with a task if it needs only that one of it.
  const auto in_last = [&](size_t i) { return phase[i] == last; };
  if (own == last + 1 && std::count_if(before_[t].begin(), before_[t].end(), in_last) == 1)
    if (follows(tasks_[*std::find_if(before_[t].begin(), before_[t].end(), in_last)], tasks_[t])) return last;
  return own;
}

PhaseAssigner::Phases PhaseAssigner::assign(std::span<const size_t> earliest) const {
  std::vector<size_t> phase(tasks_.size());
  size_t phases = 0;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    phase[t] = phase_of(t, phase);
    if (!earliest.empty()) phase[t] = std::max(phase[t], earliest[t]);
    phases = std::max(phases, phase[t] + 1);
  }
  return grouped(phase, phases);
}

PhaseAssigner::Phases PhaseAssigner::grouped(const std::vector<size_t>& phase, size_t phases) const {
  std::vector<size_t> joined(tasks_.size());  // by group: the group it was joined to, or itself
  std::iota(joined.begin(), joined.end(), size_t{0});
  const auto root = [&](size_t group) {
    while (joined[group] != group) group = joined[group];
    return group;
  };
  for (size_t t = 0; t < tasks_.size(); ++t)
    for (const size_t i : before_[t])
      if (phase[i] == phase[t]) joined[root(i)] = root(t);
  Phases out(phases);
  std::vector<size_t> place(tasks_.size(), SIZE_MAX);  // by group: its place in its phase
  for (size_t t = 0; t < tasks_.size(); ++t) {
    std::vector<Group>& groups = out[phase[t]];
    size_t& at = place[root(t)];
    if (at == SIZE_MAX) {
      at = groups.size();
      groups.emplace_back();
    }
    groups[at].push_back(t);
  }
  const auto weight = [&](const Group& group) {
    return time_per_block(*tasks_[group[0]].step, group.size() > 1 && small_[group[0]]);
  };
  for (std::vector<Group>& groups : out)
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const Group& a, const Group& b) { return weight(a) > weight(b); });
  return out;
}

void set_phases(KernelSchedule& kernel, const PhaseAssigner::Phases& phases) {
  std::vector<GpuTask> tasks;
  kernel.phases.clear();
  for (const std::vector<PhaseAssigner::Group>& groups : phases) {
    std::vector<size_t>& phase = kernel.phases.emplace_back();
    for (const PhaseAssigner::Group& group : groups) {
      phase.push_back(tasks.size());
      if (group.size() == 1) {
        tasks.push_back(std::move(kernel.tasks[group[0]]));
        continue;
      }
      GpuTask& task = tasks.emplace_back();
      for (const size_t t : group) task.members.push_back(std::move(kernel.tasks[t]));
      task.form = cost_model::is_small(*task.members[0].step) ? TaskForm::chain : TaskForm::elements;
    }
  }
  kernel.tasks = std::move(tasks);
}

}  // namespace lockstep::detail
