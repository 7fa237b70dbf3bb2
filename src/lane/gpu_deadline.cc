#include "lane/gpu_deadline.h"

#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "base/runtime_parts.h"
#include "base/runtime_settings.h"
#include "hardware/gpu_launch.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

std::atomic<bool> expired = false;

struct GpuTimeout {
  const std::chrono::duration<double> value = detail::runtime_option(&RuntimeOptions::gpu_timeout);
};

}  // namespace

std::chrono::duration<double> GpuDeadline::timeout() { return detail::runtime_part<GpuTimeout>().value; }

bool GpuDeadline::any_expired() { return expired; }

void GpuDeadline::pause_or_throw(const std::string& gpu) const {
  constexpr std::chrono::microseconds kPause(50);
  const Clock::time_point now = Clock::now();
  if (now - began_ < spin_) return std::this_thread::yield();
  if (expired)
    throw DeviceLost(fmt::format("cuda: no longer waiting for {}: an earlier wait for a GPU timed out", gpu));
  if (now - since_ < timeout()) return std::this_thread::sleep_for(kPause);
  expired = true;
  throw DeviceLost(fmt::format(
      "cuda: {} has not finished its work within {:g} s{}: it hangs, or one call takes longer; in that case use a "
      "larger --gpu-timeout (LOCKSTEP_GPU_TIMEOUT); restart to resume from the last checkpoint, and check nvidia-smi "
      "and the kernel log (Xid)",
      gpu, timeout().count(), GpuLaunch::where()));
}

}  // namespace lockstep
