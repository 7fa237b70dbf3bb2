// Retrier: repeats calls while the runner of the jobs (the Kubernetes API server) is unreachable. Used by the main
// thread only.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "jobs/runner.h"

namespace lockstep::cli {

class Retrier {
 public:
  using Clock = std::chrono::steady_clock;

  // Stops retrying at `end`.
  explicit Retrier(Clock::time_point end) : end_(end) {}

  // Returns body(). While body() throws RunnerUnreachable, sleeps for 1, 2, 4, ... and at most 10 seconds and calls it again.
  // At `end` throws RunnerUnreachable with the time since the last success.
  template <class Body>
  auto run(const Body& body) {
    for (;;) {
      if (pause_ == pause_.zero()) failing_since_ = Clock::now();
      try {
        auto result = body();
        report_success();
        return result;
      } catch (const RunnerUnreachable& error) {
        back_off(error.what());
      }
    }
  }

 private:
  void report_success();
  void back_off(const std::string& reason);

  const Clock::time_point end_;
  std::chrono::seconds pause_{0};
  Clock::time_point failing_since_;
};

}  // namespace lockstep::cli
