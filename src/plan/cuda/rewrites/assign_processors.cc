#include <algorithm>
#include <utility>

#include "ops/cuda/cost_model.h"
#include "plan/cuda/lower.h"
#include "plan/cuda/rewrites.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {
namespace {

class ProcessorAssigner {
 public:
  ProcessorAssigner(KernelSchedule& kernel, const GpuTarget& target) : kernel_(kernel), target_(target) {}

  void run(const std::vector<size_t>& phase) {
    std::vector<std::pair<double, size_t>> products;  // operations, and the task
    double all = 0;
    int64_t blocks = 0;
    for (const size_t index : phase) {
      const GpuTask& task = kernel_.tasks[index];
      if (task.form == TaskForm::chain) {
        ++blocks;
      } else if (!is_composite(task) && task.step->operations > 0) {
        products.emplace_back(task.step->operations, index);
        all += task.step->operations;
        blocks += task.step->blocks;
      }
    }
    if (products.empty()) return;
    std::stable_sort(products.begin(), products.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    const int64_t left = products.size() > 1 ? divide_among(products, all) : target_.processors - blocks;
    assign_rest(phase, left);
  }

 private:
  // Divides the multiprocessors among products, the largest first, in proportion to their work. Returns how many are
  // left.
  int64_t divide_among(const std::vector<std::pair<double, size_t>>& products, double all) {
    const int64_t least = target_.processors / cost_model::kLeastProductShare;
    int64_t left = target_.processors;
    for (const auto& [operations, index] : products) {
      auto own = static_cast<int64_t>(target_.processors * operations / all);
      if (own < least) own = left >= cost_model::kFewProcessors ? left : least;
      left -= assign(index, own);
    }
    return left;
  }
  // Tasks that are not products get what is left.
  void assign_rest(const std::vector<size_t>& phase, int64_t left) {
    for (const size_t index : phase) {
      const GpuTask& task = kernel_.tasks[index];
      if (is_composite(task) || task.stage != TaskStage::whole) continue;
      const CudaStep& step = *task.step;
      if (step.operations > 0 || cost_model::is_small(step) || step.blocks <= left) continue;
      left -=
          assign(index, left >= cost_model::kFewProcessors ? left : target_.processors / cost_model::kLeastOtherShare);
    }
  }
  // Returns the number of thread blocks that the task then has.
  int64_t assign(size_t index, int64_t processors) {
    GpuTask& task = kernel_.tasks[index];
    task = with_processors(task, static_cast<int>(processors), target_);
    return task.step->blocks;
  }

  KernelSchedule& kernel_;
  const GpuTarget& target_;
};

}  // namespace

void assign_processors(KernelSchedule& kernel, const GpuTarget& target) {
  ProcessorAssigner assigner(kernel, target);
  for (const std::vector<size_t>& phase : kernel.phases) assigner.run(phase);
}

}  // namespace lockstep::detail
