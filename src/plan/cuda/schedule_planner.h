// SchedulePlanner: turns a program into a schedule (schedule.h) when it is known which values share memory, and before
// memory is assigned. Consecutive rows that are small enough become one persistent kernel. It needs no GPU: CudaPlanner
// derives from it and prepares the kernels. Used by one thread.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "plan/cuda/schedule.h"
#include "plan/planner.h"

namespace lockstep {

class SchedulePlanner : public Planner {
 public:
  // run() fills `schedule` for its target. Both `plan` and `schedule` must outlive the planner.
  SchedulePlanner(const Program& program, Pool& pool, const PlannerOptions& options, Plan& plan,
                  detail::GpuSchedule& schedule)
      : Planner(program, pool, options, plan), plan_(plan), schedule_(schedule) {}

 protected:
  void schedule() final;

  // A value of the program as tasks name it.
  TaskValue task_value(ValueId id);
  // By kernel: its rows. REQUIRES: schedule().
  const std::vector<std::vector<const Eqn*>>& rows() const { return rows_; }

 private:
  // Divides the equations into kernels. Sets `rows_`.
  void make_kernels();
  // Sets what is read after each kernel, and optimizes persistent ones.
  void optimize_kernels();
  // Gives values that rewrites added memory, and sets the lifetimes of arena blocks, in kernels.
  void assign_lifetimes();

  const Plan& plan_;
  detail::GpuSchedule& schedule_;
  std::vector<std::vector<const Eqn*>> rows_;
  std::map<std::pair<int, size_t>, ValueId> memory_by_slot_;  // the first value of each slot
};

}  // namespace lockstep
