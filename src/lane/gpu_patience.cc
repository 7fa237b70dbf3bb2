#include "lane/gpu_patience.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <thread>

#include "base/check.h"
#include "lane/gpu_launch.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

std::atomic<bool> given_up = false;

}  // namespace

std::chrono::duration<double> parse_gpu_timeout(const std::optional<std::string>& said) {
  if (!said) return std::chrono::minutes(30);
  constexpr double kMost = 1e9;  // a longer one is no deadline
  double seconds = 0;
  const char* const end = said->data() + said->size();
  const auto [stop, error] = std::from_chars(said->data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds > 0 && seconds <= kMost))
    throw_error(
        "cuda: LOCKSTEP_GPU_TIMEOUT is \"{}\"; give the seconds that a GPU may take for what it was given, such as "
        "1800",
        *said);
  return std::chrono::duration<double>(seconds);
}

std::chrono::duration<double> GpuPatience::timeout() {
  static const std::chrono::duration<double> out = [] {
    const char* const text = std::getenv("LOCKSTEP_GPU_TIMEOUT");
    return parse_gpu_timeout(text && *text ? std::optional<std::string>(text) : std::nullopt);
  }();
  return out;
}

bool GpuPatience::is_given_up() { return given_up; }

void GpuPatience::rest(const std::string& name) const {
  constexpr std::chrono::microseconds kPause(50);
  const Clock::time_point now = Clock::now();
  if (now - began_ < awake_) return std::this_thread::yield();
  if (given_up) throw DeviceLost(fmt::format("cuda: {} is waited for no more: a wait for a GPU was given up", name));
  if (now - since_ < timeout()) return std::this_thread::sleep_for(kPause);
  given_up = true;
  throw DeviceLost(fmt::format(
      "cuda: {} has not done within {:g} s what it was given{}: it hangs, or a call takes longer, for which "
      "LOCKSTEP_GPU_TIMEOUT=SECONDS gives it time; start again, which goes on from the last checkpoint, and see what "
      "nvidia-smi and the kernel's log (Xid) say of it",
      name, timeout().count(), GpuLaunch::where()));
}

}  // namespace lockstep
