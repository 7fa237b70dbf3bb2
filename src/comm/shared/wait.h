// What all waits of ranks on one host have in common: how long they sleep at a time, and what they say in the end.
// Pure; safe from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "comm/shared/board.h"

namespace lockstep::detail {

// A sleeper looks again after this time, in case that the one who would have woken it was killed.
constexpr auto kNap = std::chrono::milliseconds(50);
// How often it looks whether those it waits for still live.
constexpr auto kLookInterval = std::chrono::milliseconds(250);

// Without overflow.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::nanoseconds timeout) {
  constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() + std::min(timeout, kLongest);
}

inline std::string timeout_text(std::string_view operation, int64_t number, const std::string& group,
                                const std::string& me, int size, std::chrono::nanoseconds timeout,
                                const std::vector<int>& absent, const std::function<std::string(int)>& label,
                                std::string_view state = "") {
  std::vector<std::string> labels;
  for (const int rank : absent) labels.push_back(label(rank));
  return fmt::format(
      "{} {} on \"{}\": rank {} of {} waited {:.3g} s for {} {}{}; see there what they do or how they ended, or "
      "raise the timeout if they are only slow",
      operation, number, group, me, size, std::chrono::duration<double>(timeout).count(),
      labels.size() == 1 ? "rank" : "ranks", fmt::join(labels, ", "), state);
}

[[noreturn]] inline void throw_failure(const Failure& failure, std::string_view operation, int64_t number,
                                       const std::string& group, const std::string& me, int size) {
  if (failure.cause == Cause::mismatch) throw Error(failure.message);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", operation, number, group, me,
                                size, failure.message));
}

}  // namespace lockstep::detail
