// Constants and messages that all waits between ranks of one host share. Pure functions; safe from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "comm/failure_text.h"
#include "comm/shared/segment_view.h"

namespace lockstep::detail {

// A sleeping rank checks its condition again after this time, in case the rank that should wake it was killed.
constexpr auto kMaxSleep = std::chrono::milliseconds(50);
// How often a waiting rank checks whether the processes it waits for are alive.
constexpr auto kLivenessInterval = std::chrono::milliseconds(250);

// began + timeout, without overflow.
inline std::chrono::steady_clock::time_point deadline_after(
    std::chrono::nanoseconds timeout, std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now()) {
  constexpr std::chrono::nanoseconds kMaxWait = std::chrono::hours(24 * 365);
  return began + std::min(timeout, kMaxWait);
}

// `own` labels this rank, `absent` are the ranks it waited for, and `detail` is appended to their list.
inline std::string timeout_message(std::string_view operation, int64_t number, const std::string& group,
                                   const std::string& own, int size, std::chrono::nanoseconds timeout,
                                   const std::vector<int>& absent, const std::function<std::string(int)>& label,
                                   std::string_view detail = "") {
  std::vector<std::string> labels;
  for (const int rank : absent) labels.push_back(label(rank));
  return fmt::format("{} {} on \"{}\": rank {} of {} waited {:.3g} s for {} {}{}; {}", operation, number, group, own,
                     size, std::chrono::duration<double>(timeout).count(), labels.size() == 1 ? "rank" : "ranks",
                     fmt::join(labels, ", "), detail, kTimeoutRemedy);
}

[[noreturn]] inline void throw_failure(const GroupFailure& failure, std::string_view operation, int64_t number,
                                       const std::string& group, const std::string& own, int size) {
  if (failure.cause == FailureCause::mismatch) throw Error(failure.message);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", operation, number, group, own,
                                size, failure.message));
}

}  // namespace lockstep::detail
