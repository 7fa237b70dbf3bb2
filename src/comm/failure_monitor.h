// FailureMonitor: a thread that notices when a group fails, without taking part in its operations.
//
// It waits in a barrier that never completes: all ranks create two extra groups of the watched group; rank 0 waits in
// the first one and the other ranks in the second. A failure of the watched group fails both, which ends the barrier.
//
// Thread safety: created by all ranks of the watched group; used by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"
#include "comm/comm.h"

namespace lockstep::detail {

class FailureMonitor {
 public:
  // When the watched group fails, calls `on_failure` with the message, from the thread of the monitor. A rank with an
  // empty `on_failure` creates the groups but does not watch.
  FailureMonitor(Comm& watched, std::function<void(const std::string&)> on_failure) {
    std::vector<int> all(static_cast<size_t>(watched.size()));
    std::iota(all.begin(), all.end(), 0);
    for (auto& group : groups_) group = watched.split(all, "monitor");
    if (!on_failure) return;
    Comm& mine = *groups_[watched.rank() == 0 ? 0 : 1];
    mine.set_timeout(std::chrono::hours(24 * 365));
    thread_ = start_thread([this, &mine, on_failure = std::move(on_failure)] {
      try {
        mine.barrier();
      } catch (const std::exception& error) {
        // A rank that has left is not reported: ranks that need it notice themselves.
        const std::string message = error.what();
        const bool left = message.find("has left the group") != message.npos || message.find(kClosing) != message.npos;
        if (!left && !closing_) on_failure(message);
      }
    });
  }
  ~FailureMonitor() {
    closing_ = true;
    if (!thread_.joinable()) return;
    for (auto& group : groups_) group->abort(kClosing);
    thread_.join();
  }
  FailureMonitor(const FailureMonitor&) = delete;
  FailureMonitor& operator=(const FailureMonitor&) = delete;

 private:
  static constexpr const char* kClosing = "the group is closed";

  std::unique_ptr<Comm> groups_[2];
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace lockstep::detail
