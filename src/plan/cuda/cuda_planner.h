// CudaPlanner: the planner of a CudaPlan. It prepares the kernels of the schedule and the constants. Used by one thread.
#pragma once

#include <string>

#include "plan/cuda/cuda_plan.h"
#include "plan/cuda/schedule_planner.h"

namespace lockstep {

class CudaPlanner final : public SchedulePlanner {
 public:
  CudaPlanner(const Program& program, Pool& pool, const PlannerOptions& options, CudaPlan& plan)
      : SchedulePlanner(program, pool, options, plan, plan.schedule_), plan_(plan), stream_(plan.stream_) {
    plan.schedule_.target = GpuTarget::of(stream_.info());
  }

 protected:
  const void* constant_memory(size_t index, const BufferPtr& host) override;
  Kernel prepare_kernel(const Op& op, const KernelSpec& host, std::string& text, bool& waits) override;
  Kernel copy_kernel(int64_t bytes) const override;
  void add_instructions() override;
  void finish() override;

 private:
  void add_persistent_kernel(const detail::KernelSchedule& kernel, const std::vector<const Eqn*>& rows);
  // Gives small inputs and outputs device memory of the plan.
  void add_stable_buffers();

  CudaPlan& plan_;
  CudaStream& stream_;
  detail::KernelSchedule* prepared_ = nullptr;  // the library kernel that is being prepared
};

}  // namespace lockstep
