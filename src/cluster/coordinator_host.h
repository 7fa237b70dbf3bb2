// CoordinatorHost: runs a Coordinator with a clock, a lock and a timer thread. Thread-safe.
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
  ~CoordinatorHost();  // calls close()
  CoordinatorHost(const CoordinatorHost&) = delete;
  CoordinatorHost& operator=(const CoordinatorHost&) = delete;

  // Returns a new call number.
  uint64_t new_call() { return next_call_.fetch_add(1, std::memory_order_relaxed); }

  // Passes a request to the coordinator. The completion is called once with the answer, from any thread, possibly
  // before this returns. It may call this object, and must not block.
  void submit(uint64_t call, const Request& request, const std::string& address, Completion completion);

  // The caller no longer waits. Returns true if the completion will never be called, false if it was, or is being,
  // called.
  bool cancel(uint64_t call);

  // Waits until the failure was sent to all reachable processes, but at most one heartbeat interval (1 to 5 s): by then
  // every live process has sent another request. Returns immediately if the job is over.
  void wait_failure_delivered();

  // Answers all pending and later calls with a failure, and stops the timer thread. Only the first call has an effect.
  void close(const std::string& reason);

 private:
  void run();
  // Calls the completions of answered calls. Releases the lock.
  void deliver(std::unique_lock<std::mutex> lock);

  std::atomic<uint64_t> next_call_{1};
  std::mutex mutex_;
  std::condition_variable changed_;
  Coordinator coordinator_;
  std::map<uint64_t, Completion> completions_;
  bool closed_ = false;
  std::optional<std::chrono::steady_clock::time_point>
      delivery_deadline_;  // of wait_failure_delivered(), set by the first
  std::thread thread_;
};

// A channel to a coordinator in the same process.
std::unique_ptr<ControlChannel> in_process_channel(std::shared_ptr<CoordinatorHost> host);

}  // namespace lockstep
