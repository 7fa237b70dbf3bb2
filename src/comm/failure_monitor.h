// Alarm: a thread that waits for a failure of a group, without being in its way: in a group of its own that never
// meets, because rank 0 waits in one and the others in another. Made by all ranks of the group; used by one thread.
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

#include "comm/comm.h"

namespace lockstep::detail {

class Alarm {
 public:
  // Calls `ring`, if there is one, with what the watched group fails with.
  Alarm(Comm& watched, std::function<void(const std::string&)> ring) {
    std::vector<int> all(static_cast<size_t>(watched.size()));
    std::iota(all.begin(), all.end(), 0);
    for (auto& group : groups_) group = watched.split(all, "alarm");
    if (!ring) return;
    Comm& mine = *groups_[watched.rank() == 0 ? 0 : 1];
    mine.set_timeout(std::chrono::hours(24 * 365));
    thread_ = std::thread([this, &mine, ring = std::move(ring)] {
      try {
        mine.barrier();
      } catch (const std::exception& error) {
        // One that left says nothing: those who need it will find out.
        const std::string message = error.what();
        const bool left = message.find("has left the group") != message.npos || message.find(kClosing) != message.npos;
        if (!left && !closing_) ring(message);
      }
    });
  }
  ~Alarm() {
    closing_ = true;
    if (!thread_.joinable()) return;
    for (auto& group : groups_) group->abort(kClosing);
    thread_.join();
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

 private:
  static constexpr const char* kClosing = "the group is closed";

  std::unique_ptr<Comm> groups_[2];
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace lockstep::detail
