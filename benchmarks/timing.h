// Time in benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace lockstep {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seconds per call of f, over about `seconds`. wait(result) waits for a result and everything before it.
template <class F, class Wait>
double seconds_per_call(F&& f, Wait&& wait, double seconds) {
  wait(f());  // compiles
  Clock::time_point begin = Clock::now();
  wait(f());
  const auto calls = std::max<int64_t>(1, static_cast<int64_t>(seconds / std::max(seconds_since(begin), 1e-6)));
  begin = Clock::now();
  for (int64_t i = 1; i < calls; ++i) f();
  wait(f());
  return seconds_since(begin) / static_cast<double>(calls);
}

}  // namespace lockstep
