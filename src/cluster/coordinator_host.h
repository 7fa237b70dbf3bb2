// CoordinatorHost: gives a Coordinator what it has not: a clock, a lock and a thread that lets time pass. Safe from any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cluster/control_channel.h"
#include "cluster/coordinator.h"

namespace lockstep {

class CoordinatorHost {
 public:
  using Completion = std::function<void(const Answer&)>;

  explicit CoordinatorHost(CoordinatorOptions options);
  ~CoordinatorHost();  // as close()
  CoordinatorHost(const CoordinatorHost&) = delete;
  CoordinatorHost& operator=(const CoordinatorHost&) = delete;

  // A number for a call.
  uint64_t new_call() { return next_call_.fetch_add(1, std::memory_order_relaxed); }

  // The completion is called once with the answer, maybe before this returns, from any thread. It may call back here,
  // and must not block.
  void submit(uint64_t call, const Request& request, const std::string& address, Completion completion);

  // The asker has gone. Whether the completion will now never be called; if not it was, or is being called.
  bool cancel(uint64_t call);

  // Waits until a failure has been answered to all who can hear it, but not longer than a process that is alive takes
  // to ask again. Nothing is waited for when the job is over.
  void wait_failure_delivered();

  // Everything that waits, and everything later, is answered with a failure, and the thread ends. Only the first
  // counts.
  void close(const std::string& reason);

 private:
  void run();
  // Calls the completions of what has been answered. Releases the lock.
  void deliver(std::unique_lock<std::mutex> lock);

  std::atomic<uint64_t> next_call_{1};
  std::mutex mutex_;
  std::condition_variable changed_;
  Coordinator coordinator_;
  std::map<uint64_t, Completion> completions_;
  bool closed_ = false;
  std::optional<std::chrono::steady_clock::time_point>
      delivery_deadline_;  // of the failure, those who have not heard of it
  std::thread thread_;
};

// A channel to a coordinator in the same process.
std::unique_ptr<ControlChannel> in_process_channel(std::shared_ptr<CoordinatorHost> host);

}  // namespace lockstep
