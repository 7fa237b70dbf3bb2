#include <algorithm>

#include "ops/cuda/cost_model.h"
#include "plan/cuda/lower.h"
#include "plan/cuda/rewrites.h"

namespace lockstep::detail {
namespace {

// Rows that become one task of `count` ranges, or one row. The level is the phase in which it could start at the
// earliest, if chains of small tasks take no time.
struct RangeGroup {
  std::vector<size_t> members;
  int64_t count = 0;  // from the second member on
  size_t level = 0;
};

class RangeGroups {
 public:
  RangeGroups(const std::vector<GpuTask>& tasks, const GpuTarget& target)
      : tasks_(tasks), target_(target), group_of_(tasks.size()) {
    for (const GpuTask& task : tasks_) ranges_.push_back(traits_of(task, target).ranges);
    for (size_t t = 0; t < tasks_.size(); ++t) add(t);
    // A task that needs another one has a later level, or was behind it before.
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const RangeGroup& a, const RangeGroup& b) { return a.level < b.level; });
  }

  std::vector<GpuTask> fused() const {
    std::vector<GpuTask> out;
    for (const RangeGroup& group : groups_) {
      GpuTask task;
      task.form = TaskForm::ranges;
      task.count = group.count;
      for (size_t t : group.members) task.members.push_back(tasks_[t]);
      if (group.members.size() > 1 && lower_ranges(task, target_))
        out.push_back(std::move(task));
      else
        out.insert(out.end(), task.members.begin(), task.members.end());
    }
    return out;
  }

 private:
  bool is_small(size_t t) const { return cost_model::is_small(*tasks_[t].step); }

  // Whether no range of one task touches what another range of the other one writes.
  bool stay_in_their_ranges(size_t first, size_t second) const {
    const auto reads_own_range = [&](size_t writer, size_t reader) {
      const std::vector<TaskValue> read = operands(tasks_[reader]);
      for (const TaskValue& written : results(tasks_[writer]))
        for (size_t i = 0; i < read.size(); ++i)
          if (same_memory(written, read[i]) && !ranges_[reader].owns(i)) return false;
      return true;
    };
    return reads_own_range(first, second) && reads_own_range(second, first);
  }

  int64_t count_of(const RangeGroup& group) const {
    return group.count > 0 ? group.count : range_count({tasks_[group.members[0]]}, target_.processors, target_);
  }

  bool can_join(size_t t, const RangeGroup& group) const {
    // One thread block runs them as well, and no other one waits for it.
    if (is_small(t) && std::all_of(group.members.begin(), group.members.end(), [&](size_t m) { return is_small(m); }))
      return false;
    const int64_t count = count_of(group);
    return count > 0 && ranges_[t].supports(count) && stay_in_their_ranges(t, t) &&
           std::all_of(group.members.begin(), group.members.end(),
                       [&](size_t m) { return stay_in_their_ranges(m, m) && stay_in_their_ranges(m, t); });
  }

  // Adds a task to the last group that it needs, if that is only one: the others have been executed by then.
  void add(size_t t) {
    size_t level = 0, last_level = 0;
    std::vector<size_t> before;  // groups
    for (size_t q = 0; q < t; ++q)
      if (conflict(tasks_[q], tasks_[t])) {
        const RangeGroup& group = groups_[group_of_[q]];
        const bool is_chain = group.members.size() == 1 && is_small(q) && is_small(t);
        level = std::max(level, group.level + (is_chain ? 0 : 1));
        last_level = std::max(last_level, group.level);
        before.push_back(group_of_[q]);
      }
    const auto is_last = [&](size_t g) { return groups_[g].level == last_level; };
    const auto last = std::find_if(before.begin(), before.end(), is_last);
    const bool is_only = last != before.end() &&
                         std::none_of(before.begin(), before.end(), [&](size_t g) { return is_last(g) && g != *last; });
    if (is_only && can_join(t, groups_[*last])) {
      RangeGroup& group = groups_[*last];
      group.count = count_of(group);
      group.members.push_back(t);
      group_of_[t] = *last;
      return;
    }
    group_of_[t] = groups_.size();
    groups_.push_back({{t}, 0, level});
  }

  const std::vector<GpuTask>& tasks_;
  const GpuTarget& target_;
  std::vector<TaskTraits::Ranges> ranges_;  // by task
  std::vector<size_t> group_of_;            // by task
  std::vector<RangeGroup> groups_;
};

}  // namespace

void fuse_ranges(KernelSchedule& kernel, const GpuTarget& target) {
  kernel.tasks = RangeGroups(kernel.tasks, target).fused();
}

}  // namespace lockstep::detail
