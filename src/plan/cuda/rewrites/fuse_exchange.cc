#include <algorithm>

#include "ops/cuda/cost_model.h"
#include "plan/cuda/lower.h"
#include "plan/cuda/rewrites.h"

namespace lockstep::detail {
namespace {

class ExchangeFusion {
 public:
  ExchangeFusion(std::vector<GpuTask>& tasks, const GpuTarget& target) : tasks_(tasks), target_(target) {
    for (size_t t = 0; t < tasks_.size(); ++t) levels_.push_back(level_of(t));
  }

  void run() {
    for (size_t t = 0; t < tasks_.size();) {
      const std::optional<size_t> product = product_before(t);
      std::optional<GpuTask> fused;
      if (product && is_ready_with(*product, t)) fused = fuse(tasks_[*product], tasks_[t]);
      if (!fused) {
        ++t;
        continue;
      }
      tasks_[*product] = *std::move(fused);
      tasks_.erase(tasks_.begin() + static_cast<ptrdiff_t>(t));
      levels_.erase(levels_.begin() + static_cast<ptrdiff_t>(t));
    }
  }

 private:
  static std::span<const GpuTask> rows_of(const GpuTask& task) {
    return task.form == TaskForm::row ? std::span(&task, 1) : std::span(task.members);
  }
  TaskTraits::Spread spread_of(const GpuTask& row) const { return traits_of(row, target_).spread; }

  // Whether the row is small by itself.
  bool is_small(const GpuTask& row) const {
    GpuTask alone = divided(row, TaskDivision::tiles, 0);
    return (row.division == TaskDivision::tiles || lower_row(alone, target_)) && cost_model::is_small(*alone.step);
  }

  // The phase in which a task can start at the earliest, if small tasks that depend on each other share a phase. The
  // other rows of a task of ranges need nothing else as late as the first one.
  size_t level_of(size_t t) const {
    const GpuTask& first = rows_of(tasks_[t])[0];
    size_t level = 0;
    for (size_t before = 0; before < t; ++before) {
      const std::span<const GpuTask> rows = rows_of(tasks_[before]);
      for (size_t k = 0; k < rows.size(); ++k)
        if (conflict(rows[k], first))
          level = std::max(level, levels_[before] + (k == 0 && is_small(rows[k]) && is_small(first) ? 0 : 1));
    }
    return level;
  }

  // The task whose result's rows the task adds up, if it is a row.
  std::optional<size_t> product_before(size_t t) const {
    std::optional<size_t> product;
    for (const GpuTask& row : rows_of(tasks_[t])) {
      const TaskTraits::Spread spread = spread_of(row);
      if (spread.kind != TaskTraits::Spread::sums) continue;
      const ValueId summed = operands(row)[spread.rows].id;
      for (size_t before = 0; before <= t; ++before)
        for (const TaskValue& result : results(tasks_[before]))
          if (result.id == summed) product = before;
    }
    return product && *product != t && tasks_[*product].form == TaskForm::row ? product : std::nullopt;
  }

  // Whether everything else that task t needs has been computed before the phase of the product.
  bool is_ready_with(size_t product, size_t t) const {
    for (size_t before = 0; before < t; ++before)
      if (before != product && (before > product || levels_[before] >= levels_[product]) &&
          conflict(tasks_[before], tasks_[t]))
        return false;
    return true;
  }

  std::optional<GpuTask> fuse(const GpuTask& product, const GpuTask& rest) const {
    const std::span<const GpuTask> rows = rows_of(rest);
    GpuTask fused;
    fused.form = TaskForm::exchange;
    fused.members = {product};
    for (const GpuTask& row : rows) {
      const TaskTraits::Spread spread = spread_of(row);
      if (spread.kind != TaskTraits::Spread::sums) continue;
      GpuTask exchanging = product;
      exchanging.exchanged = spread.few;
      exchanging.tile.reset();
      if (!lower_row(exchanging, target_)) continue;
      fused.members[0] = std::move(exchanging);
      break;
    }
    fused.members.insert(fused.members.end(), rows.begin(), rows.end());
    return lower_exchange(fused, target_) ? std::optional(std::move(fused)) : std::nullopt;
  }

  std::vector<GpuTask>& tasks_;
  const GpuTarget& target_;
  std::vector<size_t> levels_;  // by task
};

}  // namespace

void fuse_exchange(KernelSchedule& kernel, const GpuTarget& target) { ExchangeFusion(kernel.tasks, target).run(); }

}  // namespace lockstep::detail
