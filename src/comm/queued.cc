#include "comm/queued.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/start_thread.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAbandonTimeout = std::chrono::seconds(1);         // how long an abandoned operation may still run
constexpr auto kMaxOperationTime = std::chrono::hours(24 * 365);  // can be added to the clock without overflow

Clock::time_point after(std::chrono::nanoseconds time) {
  return Clock::now() + std::min<std::chrono::nanoseconds>(time, kMaxOperationTime);
}

}  // namespace

// An operation with copies of its lists. Objects are reused, so that the memory of the lists is too.
struct QueuedComm::QueuedOperation {
  void set(const Operation& from, int64_t new_number) {
    operation = from;
    counts.assign(from.counts.begin(), from.counts.end());
    receive_counts.assign(from.receive_counts.begin(), from.receive_counts.end());
    routes.assign(from.routes.begin(), from.routes.end());
    operation.counts = counts;
    operation.receive_counts = receive_counts;
    operation.routes = routes;
    number = new_number;
    done = false;
    error = nullptr;
    next = nullptr;
  }

  Operation operation;
  std::vector<int64_t> counts, receive_counts;
  std::vector<Route> routes;
  int64_t number = 0;
  bool done = false;
  std::exception_ptr error;
  QueuedOperation* next = nullptr;
};

QueuedComm::QueuedComm(int rank, int size, std::string name, std::chrono::nanoseconds timeout,
                       std::chrono::milliseconds peer_check_interval)
    : Comm(rank, size, std::move(name), timeout), peer_check_interval_(peer_check_interval) {}

QueuedComm::~QueuedComm() {
  LOCKSTEP_CHECK(!worker_.joinable(), "the destructor of a QueuedComm must call stop() first");
}

void QueuedComm::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(!first_ && !running_, "a Comm is destroyed while operations are in flight");
    stop_ = true;
  }
  queued_.notify_all();
  if (worker_.joinable()) worker_.join();
}

QueuedComm::QueuedOperation* QueuedComm::allocate() {
  if (!free_) free_ = all_.emplace_back(std::make_unique<QueuedOperation>()).get();
  return std::exchange(free_, free_->next);
}

void QueuedComm::release(QueuedOperation* queued) {
  queued->next = free_;
  free_ = queued;
}

void QueuedComm::ensure_worker() {
  if (!worker_.joinable()) worker_ = start_thread([this] { work(); });
}

void* QueuedComm::start(const Operation& operation) {
  std::unique_lock lock(mutex_);
  ensure_worker();
  QueuedOperation* queued = allocate();
  queued->set(operation, started_.load() + 1);
  started_.store(queued->number);
  (first_ ? last_->next : first_) = queued;
  last_ = queued;
  if (running_) return queued;  // the thread that runs the previous operation finds this one
  lock.unlock();
  queued_.notify_one();
  return queued;
}

void QueuedComm::run_next(std::unique_lock<std::mutex>& lock, Time deadline) {
  QueuedOperation* queued = first_;
  first_ = queued->next;
  running_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    run(queued->operation, queued->number, deadline);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  running_ = false;
  queued->error = std::move(error);
  queued->done = true;
  changed_.notify_all();  // another thread may wait for this operation
}

void QueuedComm::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (first_ && !running_) {
      run_next(lock, kNever);
    } else if (queued_.wait_for(lock, peer_check_interval_) == std::cv_status::timeout && running_) {
      lock.unlock();
      check_peers();
      lock.lock();
    }
  }
}

bool QueuedComm::await(std::unique_lock<std::mutex>& lock, QueuedOperation* queued, Time deadline, bool help) {
  while (!queued->done) {
    if (help && !running_) {
      run_next(lock, deadline);
      continue;
    }
    const Time now = Clock::now();
    if (now >= deadline) return false;
    if (changed_.wait_until(lock, std::min(deadline, now + peer_check_interval_)) == std::cv_status::timeout &&
        running_) {
      lock.unlock();
      check_peers();
      lock.lock();
    }
  }
  // Later operations may be queued, for which the worker was not woken.
  if (first_ && !running_) queued_.notify_one();
  return true;
}

void QueuedComm::finish(void* state) {
  auto* queued = static_cast<QueuedOperation*>(state);
  std::unique_lock lock(mutex_);
  std::exception_ptr expired;
  if (!await(lock, queued, after(timeout()), true)) {
    lock.unlock();
    expired = on_timeout(queued->operation, queued->number);
    lock.lock();
    await(lock, queued, kNever, true);
  }
  const std::exception_ptr error = expired ? expired : std::exchange(queued->error, nullptr);
  release(queued);
  if (error) std::rethrow_exception(error);
}

void QueuedComm::abandon(void* state) noexcept {
  auto* queued = static_cast<QueuedOperation*>(state);
  std::unique_lock lock(mutex_);
  if (!await(lock, queued, after(std::min<std::chrono::nanoseconds>(timeout(), kAbandonTimeout)), false)) {
    lock.unlock();
    abort(fmt::format("did not wait for its {} {}", lockstep::name(queued->operation.kind), queued->number));
    lock.lock();
    await(lock, queued, kNever, true);
  }
  queued->error = nullptr;
  release(queued);
}

void QueuedComm::perform(const Operation& operation) {
  std::unique_lock lock(mutex_);
  if (first_ || running_) {
    lock.unlock();
    return finish(start(operation));
  }
  ensure_worker();
  const int64_t number = started_.load() + 1;
  started_.store(number);
  running_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    run(operation, number, after(timeout()));
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  running_ = false;
  changed_.notify_all();
  // Other threads may have queued operations, for which the worker was not woken.
  if (first_) queued_.notify_one();
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep
