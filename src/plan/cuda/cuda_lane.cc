#include "plan/cuda/cuda_lane.h"

#include "comm/cuda/cuda_comm.h"
#include "comm/world.h"
#include "lane/gpu_deadline.h"
#include "lockstep/error.h"
#include "plan/cuda/cuda_plan.h"

namespace lockstep {
namespace {

// Runs `wait`; reports a CommError to the other processes and rethrows it, or its cause.
template <class Wait>
void wait_and_report(const Wait& wait) {
  try {
    wait();
  } catch (const CommError& error) {
    World::current().abort(error.what(), true);
    World::current().throw_cause(error);
    throw;
  }
}

}  // namespace

class CudaLane::CudaReadback final : public Readback {
 public:
  CudaReadback(CudaLane& lane, ReadbackSlot& slot) : lane_(lane), slot_(slot) {}
  ~CudaReadback() override {
    // The copy must have ended before its memory is reused.
    try {
      if (source_) lane_.stream_.wait_for(slot_.copied);
    } catch (const std::exception&) {  // reported elsewhere; the GPU may still write to the memory, so it stays busy
      return;
    }
    const std::lock_guard lock(lane_.slots_mutex_);
    slot_.busy = false;
  }

  void start(const BufferPtr& source) {
    lane_.stream_.enqueue_copy_to_host(slot_.memory->data(), source->data(), source->size(), slot_.copied);
    source_ = source;
  }

  BufferPtr wait() override {
    wait_and_report([&] { lane_.stream_.wait_for(slot_.copied); });
    const int64_t bytes = source_->size();
    source_.reset();
    return Allocator::host().part_of(slot_.memory, 0, bytes);
  }

 private:
  CudaLane& lane_;
  ReadbackSlot& slot_;
  BufferPtr source_;  // until the copy has been waited for
};

CudaLane::CudaLane(CudaStream& stream, Pool& pool)
    : stream_(stream),
      pool_(pool),
      info_{.platform = "cuda",
            .name = stream.info().name,
            .space = MemorySpace::device,
            .asynchronous = true,
            .fuses_scans = true} {}

CudaLane::~CudaLane() {
  if (GpuDeadline::any_expired()) return;
  for (const auto& slot : slots_)
    if (!slot->busy) cuda().cudaEventDestroy(slot->copied);
}

void CudaLane::copy_to_host(void* to, const void* from, int64_t bytes) {
  wait_and_report([&] { stream_.to_host(to, from, bytes); });
}

void CudaLane::wait() {
  wait_and_report([&] { stream_.wait_for_all(); });
}

CudaLane::ReadbackSlot& CudaLane::acquire_slot(int64_t bytes) {
  const std::lock_guard lock(slots_mutex_);
  ReadbackSlot* found = nullptr;
  for (const auto& slot : slots_)  // one that no caller reads any more
    if (!slot->busy && slot->memory->unique() && (!found || slot->memory->size() >= bytes)) found = slot.get();
  if (!found) {
    stream_.enter();
    found = slots_.emplace_back(std::make_unique<ReadbackSlot>()).get();
    found->copied = new_cuda_event();
  }
  if (!found->memory || found->memory->size() < bytes) found->memory = stream_.allocate_pinned(bytes);
  found->busy = true;
  return *found;
}

std::unique_ptr<Readback> CudaLane::read_back(const BufferPtr& buffer) {
  auto out = std::make_unique<CudaReadback>(*this, acquire_slot(buffer->size()));
  out->start(buffer);
  return out;
}

std::unique_ptr<LanePlan> CudaLane::compile(const Program& program, const PlanOptions& options) {
  return std::make_unique<CudaPlan>(program, pool_, stream_, PlannerOptions{options.donated, options.comm});
}

std::shared_ptr<Comm> CudaLane::device_comm(Comm& host) { return cuda_comm(host, stream_); }

}  // namespace lockstep
