// QueuedComm: the part of a Comm that every blocking transport needs. Operations are queued by start() and run one
// after another, in the order of their start, each by one thread: a thread of the group's own, or, sooner, the one that
// waits. So operations go on while the caller computes, and one that is waited for at once costs no change of thread.
//
// A derived class writes run() and expire(), and calls stop() first in its destructor. Nothing is allocated once the
// group has seen as many operations under way, with lists as long, as it will.
//
// Threads: as Comm says; run() is never called by two threads at once.
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

  QueuedComm(int rank, int size, std::string name, std::chrono::nanoseconds timeout);
  ~QueuedComm() override;

  // Does operation `number` (they count from 1) and returns, or throws what wait() is to throw. By `deadline` it has
  // given up; kNever where nobody waits yet: then expire() will say so.
  virtual void run(const Operation& operation, int64_t number, Time deadline) = 0;

  // Somebody has waited timeout() for the operation, which another thread runs, or one before it. Makes run() return
  // soon, and the group fail; returns what that wait is to throw. Called by a thread that does not run anything.
  virtual std::exception_ptr expire(const Operation& operation, int64_t number) noexcept = 0;

  // Called some ten times a second while an operation is run by another thread: for transports that may miss that a
  // peer is gone.
  virtual void look_after() noexcept {}

  // Ends the thread of this group. REQUIRES: no operation is under way.
  void stop() noexcept;

  // The number of the last operation that this rank has started; 0: none. From any thread.
  int64_t started() const { return started_.load(); }

  void* start(const Operation& operation) final;
  void finish(void* state) final;
  void abandon(void* state) noexcept final;
  void perform(const Operation& operation) final;

 private:
  struct Item;

  // All with the lock held; run_next() lets go of it while it runs.
  Item* take();
  void ensure_worker();
  void run_next(std::unique_lock<std::mutex>& lock, Time deadline);
  bool await(std::unique_lock<std::mutex>& lock, Item* item, Time deadline, bool help);
  void release(Item* item);

  void work();

  std::mutex mutex_;
  std::condition_variable changed_;  // for those who wait
  std::condition_variable queued_;   // for the worker
  std::atomic<int64_t> started_{0};
  Item* first_ = nullptr;
  Item* last_ = nullptr;
  Item* free_ = nullptr;
  std::vector<std::unique_ptr<Item>> items_;
  bool running_ = false;
  bool stop_ = false;
  std::thread worker_;
};

}  // namespace lockstep
