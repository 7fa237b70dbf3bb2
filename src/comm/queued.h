// QueuedComm: a base class for Comms over blocking transports. start() queues operations, and they run one after
// another in the order of their start. Each is run by one thread: by the worker thread of the group, or by the thread
// that waits, if that comes first. So operations make progress while the caller computes, and an operation that is
// waited for immediately needs no switch of threads.
//
// A derived class implements run() and on_timeout(), and calls stop() first in its destructor. No memory is allocated
// once the group has reached its largest number of operations in flight and its longest lists.
//
// Thread safety: as Comm. run() is never called by two threads at the same time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

class QueuedComm : public Comm {
 protected:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  static constexpr Time kNever = Time::max();

  QueuedComm(int rank, int size, std::string name, std::chrono::nanoseconds timeout,
             std::chrono::milliseconds peer_check_interval = std::chrono::milliseconds(100));
  ~QueuedComm() override;

  // Executes operation `number`, counted from 1, and returns, or throws what wait() will throw. Must give up at
  // `deadline`. It is kNever when no thread waits for the operation yet: on_timeout() then ends it.
  virtual void run(const Operation& operation, int64_t number, Time deadline) = 0;

  // Called when a thread has waited timeout() for an operation, while another thread runs it or an earlier one. Makes
  // run() return soon, and fails the group. Returns the exception for that wait.
  virtual std::exception_ptr on_timeout(const Operation& operation, int64_t number) noexcept = 0;

  // Called every peer_check_interval while another thread runs an operation, for transports whose run() may not notice
  // that a peer has ended.
  virtual void check_peers() noexcept {}

  // Ends the worker thread. REQUIRES: no operation is in flight.
  void stop() noexcept;

  // The number of the last operation that this rank has started; 0: none. Safe from any thread.
  int64_t started() const { return started_.load(); }

  void* start(const Operation& operation) final;
  void finish(void* state) final;
  void abandon(void* state) noexcept final;
  void perform(const Operation& operation) final;

 private:
  struct QueuedOperation;

  // All with the lock held; run_next() releases it while the operation runs.
  QueuedOperation* allocate();
  void release(QueuedOperation* queued);
  void ensure_worker();
  void run_next(std::unique_lock<std::mutex>& lock, Time deadline);
  // Waits until the operation is done; false when it is not by `deadline`. With `help` this thread runs the operations
  // of the queue itself whenever no other thread runs one.
  bool await(std::unique_lock<std::mutex>& lock, QueuedOperation* queued, Time deadline, bool help);

  void work();

  const std::chrono::milliseconds peer_check_interval_;
  std::mutex mutex_;
  std::condition_variable changed_;  // for waiting threads
  std::condition_variable queued_;   // for the worker
  std::atomic<int64_t> started_{0};
  QueuedOperation* first_ = nullptr;  // the queue
  QueuedOperation* last_ = nullptr;
  QueuedOperation* free_ = nullptr;
  std::vector<std::unique_ptr<QueuedOperation>> all_;
  bool running_ = false;  // a thread is in run()
  bool stop_ = false;
  std::thread worker_;
};

}  // namespace lockstep
