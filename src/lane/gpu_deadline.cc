#include "lane/gpu_deadline.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "hardware/gpu_launch.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

std::atomic<bool> expired = false;

}  // namespace

std::chrono::duration<double> parse_gpu_timeout(const std::optional<std::string>& value) {
  if (!value) return std::chrono::minutes(30);
  constexpr double kMaxSeconds = 1e9;
  double seconds = 0;
  const char* const end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds > 0 && seconds <= kMaxSeconds))
    throw_error("cuda: LOCKSTEP_GPU_TIMEOUT is \"{}\"; set it to the number of seconds to wait for a GPU, such as 1800",
                *value);
  return std::chrono::duration<double>(seconds);
}

std::chrono::duration<double> GpuDeadline::timeout() {
  static const std::chrono::duration<double> out = [] {
    const char* const text = std::getenv("LOCKSTEP_GPU_TIMEOUT");
    return parse_gpu_timeout(text && *text ? std::optional<std::string>(text) : std::nullopt);
  }();
  return out;
}

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
      "cuda: {} has not finished its work within {:g} s{}: it hangs, or one call takes longer; in that case set "
      "LOCKSTEP_GPU_TIMEOUT=SECONDS to a larger value; restart to resume from the last checkpoint, and check "
      "nvidia-smi "
      "and the kernel log (Xid)",
      gpu, timeout().count(), GpuLaunch::where()));
}

}  // namespace lockstep
