// InterpreterLane: runs programs one equation at a time with the plain references of tests/rows: one thread, no fusion,
// every value in memory of its own. It shows that everything above Lane works on a lane that is neither CpuLane nor
// CudaLane. As Lane.
#pragma once

#include "lane/lane.h"
#include "lane/pool.h"

namespace lockstep {

class InterpreterLane final : public Lane {
 public:
  // `pool` must outlive the lane. With MemorySpace::device, the lane's memory has addresses that the host cannot access,
  // as the memory of a GPU.
  explicit InterpreterLane(Pool& pool, MemorySpace space = MemorySpace::host);

  const LaneInfo& info() const override { return info_; }
  BufferPtr allocate(int64_t bytes, const char* purpose) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void copy_from_host(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy_to_host(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  std::unique_ptr<Readback> read_back(const BufferPtr& buffer) override;
  void wait() override {}
  std::unique_ptr<LanePlan> compile(const Program& program, const PlanOptions& options) override;
  std::shared_ptr<Comm> device_comm(Comm& host) override;

 private:
  const LaneInfo info_;
  Pool& pool_;
};

}  // namespace lockstep
