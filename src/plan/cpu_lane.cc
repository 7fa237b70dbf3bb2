#include "plan/cpu_lane.h"

#include <cstring>

#include "base/check.h"
#include "plan/plan.h"

namespace lockstep {
namespace {

// Results are complete when a run returns, so nothing has to be copied.
class CpuReadback final : public Readback {
 public:
  explicit CpuReadback(const BufferPtr& buffer) : buffer_(buffer) {}
  BufferPtr wait() override { return std::move(buffer_); }

 private:
  BufferPtr buffer_;
};

}  // namespace

BufferPtr CpuLane::allocate(int64_t bytes, const char*) { return lockstep::allocate(bytes); }

void CpuLane::copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::unique_ptr<Readback> CpuLane::read_back(const BufferPtr& buffer) { return std::make_unique<CpuReadback>(buffer); }

std::unique_ptr<LanePlan> CpuLane::compile(const Program& program, const PlanOptions& options) {
  return std::make_unique<Plan>(program, pool_, PlannerOptions{options.donated, options.comm, &arena_});
}

std::shared_ptr<Comm> CpuLane::device_comm(Comm&) {
  LOCKSTEP_CHECK(false, "a CPU lane uses the Comm of the host");
  return nullptr;
}

}  // namespace lockstep
