// How a rank waits: it advances its pending operations. When there is nothing to do it spins briefly, then sleeps until
// a rank that it waits for wakes it. It checks regularly whether the processes of those ranks are alive.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/os/blocked_signals.h"
#include "base/start_thread.h"
#include "comm/shared/group.h"
#include "comm/shared/rendezvous.h"
#include "comm/shared/wait.h"
#include "lane/pause.h"

namespace lockstep::detail {

namespace {

constexpr auto kSharedSpin = std::chrono::microseconds(60);

}  // namespace

// While one exists, the helper thread leaves the work to the thread that holds it.
class SharedGroup::ForegroundLock {
 public:
  explicit ForegroundLock(SharedGroup& group) : group_(group) {
    group.foreground_waiters_.fetch_add(1);
    lock_ = std::unique_lock(group.mutex_);
  }
  ~ForegroundLock() {
    group_.foreground_waiters_.fetch_sub(1);
    if (group_.needs_helper()) group_.wake_helper();
  }
  ForegroundLock(const ForegroundLock&) = delete;
  ForegroundLock& operator=(const ForegroundLock&) = delete;

 private:
  SharedGroup& group_;
  std::unique_lock<std::mutex> lock_;
};

// Measures how long a thread has waited without progress.
class SharedGroup::WaitTimer {
 public:
  WaitTimer(Duration timeout, bool spins) : spins_(spins), timeout_(timeout) {}

  void restart() { began_ = false; }
  bool may_spin() {
    begin();
    return spins_ && Clock::now() < spin_until_;
  }
  bool over() const { return Clock::now() >= deadline_; }
  bool liveness_check_due() {
    const auto now = Clock::now();
    if (now < next_check_) return false;
    next_check_ = now + kLivenessInterval;
    ++checks_;
    return true;
  }
  // Liveness checks since the last progress.
  int checks() const { return checks_; }
  Duration sleep_time() const { return std::clamp<Duration>(deadline_ - Clock::now(), Duration(0), kMaxSleep); }

 private:
  void begin() {
    if (std::exchange(began_, true)) return;
    const auto now = Clock::now();
    checks_ = 0;
    spin_until_ = now + kSharedSpin;
    next_check_ = now + kLivenessInterval;
    deadline_ = deadline_after(timeout_);
  }

  const bool spins_;
  const Duration timeout_;
  bool began_ = false;
  int checks_ = 0;
  Clock::time_point spin_until_, next_check_, deadline_;
};

void SharedGroup::finish(PendingOperation* pending, Duration timeout, Pool* pool) {
  const ForegroundLock turn(*this);
  try {
    if (!pending->done) run_until_done(*pending, timeout, pool);
  } catch (...) {
    release(pending);
    throw;
  }
  release(pending);
}

void SharedGroup::abandon(PendingOperation* pending, Duration timeout) noexcept {
  const ForegroundLock turn(*this);
  try {
    if (!pending->done && !all_started(pending->number))
      fail(FailureCause::aborted, fmt::format("rank {} did not wait for its {} {}", label(rank_),
                                              lockstep::name(pending->transfer.operation().kind), pending->number));
    if (!pending->done) run_until_done(*pending, timeout, nullptr);
  } catch (const std::exception&) {
    // The group has failed. Its operations no longer access the caller's memory.
  }
  release(pending);
}

// Tries before the clock is read: the other ranks usually arrive within a fraction of a microsecond.
bool SharedGroup::spin_advance(Pool* pool) {
  for (int i = 0; i < 64; ++i) {
    if (advance(pool)) return true;
    if (i >= 16) pause();
  }
  return false;
}

void SharedGroup::run_until_done(PendingOperation& pending, Duration timeout, Pool* pool) {
  WaitTimer timer(timeout, spins_);
  while (!pending.done) {
    if (pending.number < dead_from_ && (spins_ ? spin_advance(pool) : advance(pool))) {
      timer.restart();
      continue;
    }
    check_peers(pending);
    if (timer.may_spin()) {
      std::this_thread::yield();  // the awaited rank may need this CPU
      continue;
    }
    if (timer.over()) throw_timeout(pending, timeout);
    if (timer.liveness_check_due()) {
      check_peer_processes(pending);
      // All ranks have started the operation, but the group has failed: the blocking rank will not continue.
      if (failed() && timer.checks() >= 2) give_up(pending);
    }
    sleep_until_woken(timer);
  }
}

// An operation that all ranks have started can complete after a failure, as long as no rank has given it up.
void SharedGroup::check_peers(const PendingOperation& pending) {
  int stopped_rank = 0;
  const bool alive = pending.number < dead_from_ && !disagreed_;
  if (alive && !has_stopped(pending.number, &stopped_rank) && (!failed() || all_started(pending.number))) return;
  if (alive && !failed()) fail(FailureCause::aborted, fmt::format("rank {} has left the group", label(stopped_rank)));
  give_up(pending);
}

// Checks only the ranks that block the operation: a rank may exit after it has written and read all that is needed.
void SharedGroup::check_peer_processes(const PendingOperation& pending) {
  const auto slots = static_cast<uint64_t>(view_->geometry().slots);
  for (int rank = 0; rank < size_; ++rank) {
    const RankState& state = view_->rank_state(rank);
    if (state.rounds_written.load() > rounds_read_ && state.rounds_read.load() + slots > rounds_written_) continue;
    if (rank == rank_ || !is_gone(state.process)) continue;
    fail_dead_rank(rank);
    give_up(pending);
  }
}

void SharedGroup::fail_dead_rank(int rank) {
  fail(FailureCause::aborted,
       fmt::format("rank {} (process {}) is gone", label(rank), view_->rank_state(rank).process.pid));
}

void SharedGroup::give_up(const PendingOperation& pending) {
  mark_dead_from(pending);
  check_failure(lockstep::name(pending.transfer.operation().kind), pending.number);
  LOCKSTEP_CHECK(false, "operation {} was given up in a group that has not failed", pending.number);
}

// From now on this rank neither reads nor writes a round of this operation or a later one.
void SharedGroup::mark_dead_from(const PendingOperation& pending) {
  if (pending.number >= dead_from_) return;
  dead_from_ = pending.number;
  view_->own_state().stops_at.store(dead_from_ + 1);
  view_->wake_all();
}

void SharedGroup::sleep_until_woken(WaitTimer& timer) {
  const Blockers known = blockers_;
  const uint32_t wake_count = view_->begin_wait(SegmentView::wait_set(known.read, known.write));
  if (advance())
    timer.restart();
  else if (!failed() && blockers_ == known)
    view_->sleep(wake_count, timer.sleep_time());
  view_->end_wait();
}

void SharedGroup::throw_timeout(const PendingOperation& pending, Duration timeout) {
  std::vector<int> absent;
  for (int rank = 0; rank < size_; ++rank)
    if (view_->rank_state(rank).started.load() < pending.number) absent.push_back(rank);
  std::string_view detail;
  if (absent.empty()) {
    detail = ", which started it but makes no progress";
    absent.push_back(std::max({blockers_.read, blockers_.write, 0}));
  }
  const std::string_view operation = lockstep::name(pending.transfer.operation().kind);
  const std::string message = timeout_message(
      operation, static_cast<int64_t>(pending.number), name_, label(rank_), size_, timeout, absent,
      [this](int rank) { return label(rank); }, detail);
  const bool first = view_->fail(FailureCause::aborted, message);
  if (!first) give_up(pending);
  mark_dead_from(pending);
  throw CommTimeout(message);
}

// Other ranks are blocked by rounds that this rank has not written, and by slots that it has not read.
bool SharedGroup::needs_helper() const {
  if (stop_ || foreground_waiters_.load() > 0 || reading_ >= std::min(next_, dead_from_)) return false;
  if (failed() && !all_started(reading_)) return false;
  return writing_ < std::min(next_, dead_from_) ||
         rounds_written_ - rounds_read_ >= static_cast<uint64_t>(view_->geometry().slots) / 2;
}

void SharedGroup::wake_helper() {
  if (!helper_.joinable()) {
    const BlockedSignals blocked;
    helper_ = start_thread([this] { run_helper(); });
  }
  helper_woken_.notify_one();
}

void SharedGroup::run_helper() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!needs_helper()) {
      helper_woken_.wait(lock);
      continue;
    }
    if (advance()) continue;
    const Blockers known = blockers_;
    const uint32_t wake_count = view_->begin_wait(SegmentView::wait_set(known.read, known.write));
    if (!advance() && blockers_ == known) {
      lock.unlock();
      view_->sleep(wake_count, kMaxSleep);
      lock.lock();
    }
    view_->end_wait();
  }
}

}  // namespace lockstep::detail
