// CudaPlanner: the Planner of a CudaPlan. Used by one thread.
#pragma once

#include "plan/cuda/cuda_plan.h"
#include "plan/planner.h"

namespace lockstep {

class CudaPlanner final : public Planner {
 public:
  CudaPlanner(const Program& program, Pool& pool, const PlannerOptions& options, CudaPlan& plan)
      : Planner(program, pool, options, plan), plan_(plan), stream_(plan.stream_) {}

 protected:
  bool avoids_reuse(int64_t bytes) const override;
  const void* constant_memory(size_t index, const BufferPtr& host) override;
  // An op without a GPU kernel runs on the host, between copies. Then "on the host" is appended to `text`, and `waits`
  // is set.
  Kernel prepare_kernel(const Op& op, const KernelSpec& host, std::string& text, bool& waits) override;
  Kernel copy_kernel(int64_t bytes) const override;
  void finish(const std::vector<InstructionMemory>& memory) override;

 private:
  // Combines instructions that compute into persistent kernels.
  void join(const std::vector<InstructionMemory>& memory);
  // Gives small inputs and outputs device memory of the plan.
  void add_stable_buffers();

  CudaPlan& plan_;
  CudaStream& stream_;
};

}  // namespace lockstep
