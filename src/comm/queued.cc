#include "comm/queued.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lockstep {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kTick = milliseconds(100);                         // between two calls of look_after()
constexpr auto kPatience = std::chrono::seconds(1);               // for an operation that nobody waits for any more
constexpr auto kLongestOperation = std::chrono::hours(24 * 365);  // added to the clock without overflow

Clock::time_point after(std::chrono::nanoseconds time) {
  return Clock::now() + std::min<std::chrono::nanoseconds>(time, kLongestOperation);
}

}  // namespace

// An operation with lists of its own, whose memory is used again.
struct QueuedComm::Item {
  void set(const Operation& from, int64_t its_number) {
    operation = from;
    counts.assign(from.counts.begin(), from.counts.end());
    receive_counts.assign(from.receive_counts.begin(), from.receive_counts.end());
    routes.assign(from.routes.begin(), from.routes.end());
    operation.counts = counts;
    operation.receive_counts = receive_counts;
    operation.routes = routes;
    number = its_number;
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
  Item* next = nullptr;
};

QueuedComm::QueuedComm(int rank, int size, std::string name, std::chrono::nanoseconds timeout)
    : Comm(rank, size, std::move(name), timeout) {}

QueuedComm::~QueuedComm() { LOCKSTEP_CHECK(!worker_.joinable(), "stop() comes first"); }

void QueuedComm::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    LOCKSTEP_CHECK(!first_ && !running_, "a Comm is destroyed while operations are under way");
    stop_ = true;
  }
  queued_.notify_all();
  if (worker_.joinable()) worker_.join();
}

QueuedComm::Item* QueuedComm::take() {
  if (!free_) free_ = items_.emplace_back(std::make_unique<Item>()).get();
  return std::exchange(free_, free_->next);
}

void QueuedComm::release(Item* item) {
  item->next = free_;
  free_ = item;
}

void QueuedComm::ensure_worker() {
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
}

void* QueuedComm::start(const Operation& operation) {
  std::unique_lock lock(mutex_);
  ensure_worker();
  Item* item = take();
  item->set(operation, started_.load() + 1);
  started_.store(item->number);
  (first_ ? last_->next : first_) = item;
  last_ = item;
  if (running_) return item;  // the worker, who runs the one before, looks for the next
  lock.unlock();
  queued_.notify_one();
  return item;
}

void QueuedComm::run_next(std::unique_lock<std::mutex>& lock, Time deadline) {
  Item* item = first_;
  first_ = item->next;
  running_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    run(item->operation, item->number, deadline);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  running_ = false;
  item->error = std::move(error);
  item->done = true;
}

void QueuedComm::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (first_ && !running_) {
      run_next(lock, kNever);
      changed_.notify_all();
    } else if (queued_.wait_for(lock, kTick) == std::cv_status::timeout && running_) {
      lock.unlock();
      look_after();
      lock.lock();
    }
  }
}

// Whether the item was done by then. Who helps runs what comes before it, and itself, unless the worker does.
bool QueuedComm::await(std::unique_lock<std::mutex>& lock, Item* item, Time deadline, bool help) {
  while (!item->done) {
    if (help && !running_) {
      run_next(lock, deadline);
      continue;
    }
    const Time now = Clock::now();
    if (now >= deadline) return false;
    if (changed_.wait_until(lock, std::min(deadline, now + kTick)) == std::cv_status::timeout && running_) {
      lock.unlock();
      look_after();
      lock.lock();
    }
  }
  // Others may be queued behind it, for which the worker was not woken.
  if (first_ && !running_) queued_.notify_one();
  return true;
}

void QueuedComm::finish(void* state) {
  auto* item = static_cast<Item*>(state);
  std::unique_lock lock(mutex_);
  std::exception_ptr expired;
  if (!await(lock, item, after(timeout()), true)) {
    lock.unlock();
    expired = expire(item->operation, item->number);
    lock.lock();
    await(lock, item, kNever, true);
  }
  const std::exception_ptr error = expired ? expired : std::exchange(item->error, nullptr);
  release(item);
  if (error) std::rethrow_exception(error);
}

void QueuedComm::abandon(void* state) noexcept {
  auto* item = static_cast<Item*>(state);
  std::unique_lock lock(mutex_);
  if (!await(lock, item, after(std::min<std::chrono::nanoseconds>(timeout(), kPatience)), false)) {
    lock.unlock();
    abort(fmt::format("did not wait for its {} {}", lockstep::name(item->operation.kind), item->number));
    lock.lock();
    await(lock, item, kNever, true);
  }
  item->error = nullptr;
  release(item);
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
  try {
    run(operation, number, after(timeout()));
  } catch (...) {
    lock.lock();
    running_ = false;
    throw;
  }
  lock.lock();
  running_ = false;
}

}  // namespace lockstep
