#include "cli/patience.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/say.h"

namespace lockstep::cli {
namespace {

using Seconds = std::chrono::seconds;

constexpr Seconds kLongestRetry{10};

int64_t seconds_since(Patience::Clock::time_point time) {
  return std::chrono::round<Seconds>(Patience::Clock::now() - time).count();
}

}  // namespace

void Patience::answered() {
  if (pause_ > Seconds(0)) say("lockstep: note: there is an answer again, after {} s\n", seconds_since(silent_since_));
  pause_ = Seconds(0);
}

void Patience::failed(const std::string& why) {
  if (pause_ == Seconds(0)) say("lockstep: note: {}; trying again\n", why);
  if (Clock::now() >= end_)
    throw Unreachable(fmt::format("{}; there was no answer for {} s", why, seconds_since(silent_since_)));
  pause_ = std::clamp(2 * pause_, Seconds(1), kLongestRetry);
  std::this_thread::sleep_until(std::min(Clock::now() + pause_, end_));
}

}  // namespace lockstep::cli
