// CudaLane: executes programs on a GPU. As Lane.
#pragma once

#include <mutex>
#include <vector>

#include "lane/cuda/cuda_stream.h"
#include "lane/lane.h"
#include "lane/pool.h"

namespace lockstep {

class CudaLane final : public Lane {
 public:
  // `pool` computes the ops that have no GPU kernel. Both must outlive the lane.
  CudaLane(CudaStream& stream, Pool& pool);
  ~CudaLane() override;

  const LaneInfo& info() const override { return info_; }
  BufferPtr allocate(int64_t bytes, const char* purpose) override { return stream_.allocate(bytes, purpose); }
  void copy(void* to, const void* from, int64_t bytes) override { stream_.copy(to, from, bytes); }
  void copy_from_host(void* to, const void* from, int64_t bytes) override { stream_.to_device(to, from, bytes); }
  // An error of a collective is also reported to the other processes.
  void copy_to_host(void* to, const void* from, int64_t bytes) override;
  std::unique_ptr<Readback> read_back(const BufferPtr& buffer) override;
  void wait() override;
  std::unique_ptr<LanePlan> compile(const Program& program, const PlanOptions& options) override;
  int64_t memory_in_use() const override { return stream_.memory_in_use(); }
  std::shared_ptr<Comm> device_comm(Comm& host) override;

 private:
  class CudaReadback;
  // Pinned memory for a readback, which later ones reuse.
  struct ReadbackSlot {
    BufferPtr memory;
    cudaEvent_t copied = nullptr;
    bool busy = false;  // a CudaReadback has it
  };
  ReadbackSlot& acquire_slot(int64_t bytes);

  CudaStream& stream_;
  Pool& pool_;
  const LaneInfo info_;
  std::mutex slots_mutex_;
  std::vector<std::unique_ptr<ReadbackSlot>> slots_;
};

}  // namespace lockstep
