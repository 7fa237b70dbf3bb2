#include "cli/retry.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/print_stderr.h"

namespace lockstep::cli {
namespace {

using Seconds = std::chrono::seconds;

constexpr Seconds kLongestPause{10};

int64_t seconds_since(Retrier::Clock::time_point time) {
  return std::chrono::round<Seconds>(Retrier::Clock::now() - time).count();
}

}  // namespace

void Retrier::report_success() {
  if (pause_ > Seconds(0)) print_stderr("lockstep: note: reachable again after {} s\n", seconds_since(failing_since_));
  pause_ = Seconds(0);
}

void Retrier::back_off(const std::string& reason) {
  if (pause_ == Seconds(0)) print_stderr("lockstep: note: {}; retrying\n", reason);
  if (Clock::now() >= end_)
    throw RunnerUnreachable(fmt::format("{}; gave up after {} s", reason, seconds_since(failing_since_)));
  pause_ = std::clamp(2 * pause_, Seconds(1), kLongestPause);
  std::this_thread::sleep_until(std::min(Clock::now() + pause_, end_));
}

}  // namespace lockstep::cli
