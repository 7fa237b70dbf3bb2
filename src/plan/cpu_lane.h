// CpuLane: executes programs on the cores of a thread pool. As Lane.
#pragma once

#include "lane/lane.h"
#include "lane/pool.h"

namespace lockstep {

class CpuLane final : public Lane {
 public:
  // The pool must outlive the lane.
  explicit CpuLane(Pool& pool) : pool_(pool) {}

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
  const LaneInfo info_{.platform = "cpu", .name = "CPU"};
  Pool& pool_;
  Arena arena_;  // of all its plans
};

}  // namespace lockstep
