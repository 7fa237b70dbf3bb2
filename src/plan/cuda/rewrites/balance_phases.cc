// The thread blocks of a long phase do not finish at the same time. Tasks that nothing waits for fill the gaps of a
// later phase instead of making an earlier one longer.
#include <algorithm>
#include <utility>

#include "ops/cuda/cost_model.h"
#include "plan/cuda/rewrites.h"
#include "plan/cuda/rewrites/phases.h"

namespace lockstep::detail {
namespace {

class PhaseBalancer {
 public:
  explicit PhaseBalancer(const std::vector<GpuTask>& tasks)
      : tasks_(tasks), assigner_(tasks), phases_(assigner_.assign()), earliest_(tasks.size(), 0) {}

  PhaseAssigner::Phases run(int processors) {
    for (size_t i = phases_.size(); i-- > 0;) {
      const double all = operations(i);
      if (all < cost_model::kFullPhaseOperations * processors) continue;
      for (const PhaseAssigner::Group& group : std::vector(phases_[i]))
        if (may_move(group) && assigner_.operations(group) <= all * cost_model::kMovedShare)
          for (size_t to = phases_.size() - 1; to > i; --to)
            if (operations(to) >= all && postpone(group, to)) break;
    }
    return phases_;
  }

 private:
  // The second task of a reduction stays: it runs as soon as its partial results exist.
  bool may_move(const PhaseAssigner::Group& group) const {
    return !assigner_.is_small(group[0]) && tasks_[group[0]].stage != TaskStage::combine;
  }
  double operations(size_t phase) const {
    double sum = 0;
    for (const PhaseAssigner::Group& group : phases_[phase]) sum += assigner_.operations(group);
    return sum;
  }
  // Moves the tasks to a later phase if that needs no additional phase and moves no other task. If they are products,
  // small tasks may move, too.
  bool postpone(const PhaseAssigner::Group& group, size_t to) {
    std::vector<size_t> earliest = earliest_;
    for (const size_t task : group) earliest[task] = to;
    PhaseAssigner::Phases trial = assigner_.assign(earliest);
    if (trial.size() != phases_.size()) return false;
    const bool with_small = assigner_.operations(group) == 0;
    std::vector<size_t> before = places(phases_), after = places(trial);
    const auto is_moved = [&](size_t task) { return std::find(group.begin(), group.end(), task) != group.end(); };
    for (size_t t = 0; t < tasks_.size(); ++t)
      if (before[t] != after[t] && !is_moved(t) && (with_small || !assigner_.is_small(t))) return false;
    phases_ = std::move(trial);
    earliest_ = std::move(earliest);
    return true;
  }
  // By task: its phase.
  std::vector<size_t> places(const PhaseAssigner::Phases& phases) const {
    std::vector<size_t> out(tasks_.size());
    for (size_t i = 0; i < phases.size(); ++i)
      for (const PhaseAssigner::Group& group : phases[i])
        for (const size_t task : group) out[task] = i;
    return out;
  }

  const std::vector<GpuTask>& tasks_;
  const PhaseAssigner assigner_;
  PhaseAssigner::Phases phases_;
  std::vector<size_t> earliest_;
};

}  // namespace

void balance_phases(KernelSchedule& kernel, const GpuTarget& target) {
  remove_phases(kernel);
  set_phases(kernel, PhaseBalancer(kernel.tasks).run(target.processors));
}

}  // namespace lockstep::detail
