// Asks again while what runs the jobs (the API server of Kubernetes) does not answer. Used by the main thread only.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "jobs/runner.h"

namespace lockstep::cli {

class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  // Until `end`.
  explicit Patience(Clock::time_point end) : end_(end) {}

  // Returns body(). While that throws Unreachable, waits 1, 2, 4 and at most 10 seconds and calls it again. When the
  // time is over, throws Unreachable that says for how long there was no answer.
  template <class Body>
  auto ask(const Body& body) {
    for (;;) {
      if (pause_ == pause_.zero()) silent_since_ = Clock::now();
      try {
        auto result = body();
        answered();
        return result;
      } catch (const Unreachable& error) {
        failed(error.what());
      }
    }
  }

 private:
  void answered();
  void failed(const std::string& why);

  const Clock::time_point end_;
  std::chrono::seconds pause_{0};
  Clock::time_point silent_since_;
};

}  // namespace lockstep::cli
