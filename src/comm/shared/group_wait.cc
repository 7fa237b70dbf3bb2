// How a rank waits: it works on what is under way, spins for a moment when there is nothing to do, then sleeps until
// somebody it waits for wakes it, and looks now and then whether they are still there.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "comm/shared/group.h"
#include "comm/shared/rendezvous.h"
#include "comm/shared/wait.h"
#include "lane/pause.h"

namespace lockstep::detail {

namespace {

constexpr auto kSharedSpin = std::chrono::microseconds(60);

}  // namespace

// While it lives, the helper leaves the work to this thread.
class SharedGroup::Turn {
 public:
  explicit Turn(SharedGroup& group) : group_(group) {
    group.wanted_.fetch_add(1);
    lock_ = std::unique_lock(group.mutex_);
  }
  ~Turn() {
    group_.wanted_.fetch_sub(1);
    if (group_.needs_help()) group_.call_helper();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  SharedGroup& group_;
  std::unique_lock<std::mutex> lock_;
};

// How long one has waited without anything happening.
class SharedGroup::Patience {
 public:
  Patience(Duration timeout, bool spins) : spins_(spins), timeout_(timeout) {}

  void renew() { began_ = false; }
  bool may_spin() {
    begin();
    return spins_ && Clock::now() < spin_until_;
  }
  bool over() const { return Clock::now() >= deadline_; }
  bool should_look() {
    const auto now = Clock::now();
    if (now < next_look_) return false;
    next_look_ = now + kLookInterval;
    ++looks_;
    return true;
  }
  // Looks since there was progress.
  int looks() const { return looks_; }
  Duration nap() const { return std::clamp<Duration>(deadline_ - Clock::now(), Duration(0), kNap); }

 private:
  void begin() {
    if (std::exchange(began_, true)) return;
    const auto now = Clock::now();
    looks_ = 0;
    spin_until_ = now + kSharedSpin;
    next_look_ = now + kLookInterval;
    deadline_ = deadline_after(timeout_);
  }

  const bool spins_;
  const Duration timeout_;
  bool began_ = false;
  int looks_ = 0;
  Clock::time_point spin_until_, next_look_, deadline_;
};

void SharedGroup::finish(Pending* pending, Duration timeout) {
  const Turn turn(*this);
  try {
    if (!pending->done) drive(*pending, timeout);
  } catch (...) {
    release(pending);
    throw;
  }
  release(pending);
}

void SharedGroup::abandon(Pending* pending, Duration timeout) noexcept {
  const Turn turn(*this);
  try {
    if (!pending->done && !all_started(pending->number))
      fail(Cause::aborted, fmt::format("rank {} did not wait for its {} {}", label(rank_),
                                       lockstep::name(pending->transfer.operation().kind), pending->number));
    if (!pending->done) drive(*pending, timeout);
  } catch (const std::exception&) {
    // The group has failed, and this was its last touch of the memory.
  }
  release(pending);
}

// Before anything else is looked at, the clock included: the others are mostly a fraction of a microsecond away.
bool SharedGroup::advance_soon() {
  for (int i = 0; i < 64; ++i) {
    if (advance()) return true;
    if (i >= 16) pause();
  }
  return false;
}

void SharedGroup::drive(Pending& pending, Duration timeout) {
  Patience patience(timeout, spins_);
  while (!pending.done) {
    if (pending.number < end_ && (spins_ ? advance_soon() : advance())) {
      patience.renew();
      continue;
    }
    check_peers(pending);
    if (patience.may_spin()) {
      std::this_thread::yield();  // the one waited for may be waiting for this cpu
      continue;
    }
    if (patience.over()) time_out(pending, timeout);
    if (patience.should_look()) {
      look_after_peers(pending);
      // Started by all, but held up, and the group has failed: whoever holds it up will not go on.
      if (failed() && patience.looks() >= 2) stop(pending);
    }
    rest(patience);
  }
}

// Throws when the operation cannot complete any more. What all have started still can, whatever happened since, as long
// as nobody has given it up.
void SharedGroup::check_peers(const Pending& pending) {
  int who = 0;
  const bool alive = pending.number < end_ && !disagreed_;
  if (alive && !ended(pending.number, &who) && (!failed() || all_started(pending.number))) return;
  if (alive && !failed()) fail(Cause::aborted, fmt::format("rank {} has left the group", label(who)));
  stop(pending);
}

// Only those that hold it up: one that ended after it gave all that was needed is not missed.
void SharedGroup::look_after_peers(const Pending& pending) {
  const auto slots = static_cast<uint64_t>(board_->geometry().slots);
  for (int rank = 0; rank < size_; ++rank) {
    const Place& place = board_->place(rank);
    if (place.arrived.load() > taken_rounds_ && place.finished.load() + slots > put_rounds_) continue;
    if (rank == rank_ || !is_gone(place.process)) continue;
    mourn(rank);
    stop(pending);
  }
}

void SharedGroup::mourn(int rank) {
  fail(Cause::aborted, fmt::format("rank {} (process {}) is gone", label(rank), board_->place(rank).process.pid));
}

void SharedGroup::stop(const Pending& pending) {
  stop_at(pending);
  check_failure(lockstep::name(pending.transfer.operation().kind), pending.number);
  LOCKSTEP_CHECK(false, "operation {} was given up in a group that is well", pending.number);
}

// Nothing of this operation, or a later one, will be touched or given from now on.
void SharedGroup::stop_at(const Pending& pending) {
  if (pending.number >= end_) return;
  end_ = pending.number;
  board_->mine().ends_at.store(end_ + 1);
  board_->wake_all();
}

void SharedGroup::rest(Patience& patience) {
  const Blockers known = blockers_;
  const uint32_t ticket = board_->announce(Board::waiting_for(known.taken, known.put));
  if (advance())
    patience.renew();
  else if (!failed() && blockers_ == known)
    board_->sleep(ticket, patience.nap());
  board_->withdraw();
}

void SharedGroup::time_out(const Pending& pending, Duration timeout) {
  std::vector<int> absent;
  for (int rank = 0; rank < size_; ++rank)
    if (board_->place(rank).started.load() < pending.number) absent.push_back(rank);
  std::string_view state;
  if (absent.empty()) {
    state = ", which started it but does not go on";
    absent.push_back(std::max({blockers_.taken, blockers_.put, 0}));
  }
  const std::string_view operation = lockstep::name(pending.transfer.operation().kind);
  const std::string message = timeout_text(
      operation, static_cast<int64_t>(pending.number), name_, label(rank_), size_, timeout, absent,
      [this](int rank) { return label(rank); }, state);
  const bool first = board_->fail(Cause::aborted, message);
  if (!first) stop(pending);
  stop_at(pending);
  throw CommTimeout(message);
}

// Others are held up by what is not put yet, and by slots that are not free again.
bool SharedGroup::needs_help() const {
  if (stop_ || wanted_.load() > 0 || taking_ >= std::min(next_, end_)) return false;
  if (failed() && !all_started(taking_)) return false;
  return putting_ < std::min(next_, end_) ||
         put_rounds_ - taken_rounds_ >= static_cast<uint64_t>(board_->geometry().slots) / 2;
}

void SharedGroup::call_helper() {
  if (!helper_.joinable()) {
    // Signals are for the threads of the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    helper_ = std::thread([this] { help(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  called_.notify_one();
}

void SharedGroup::help() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (!needs_help()) {
      called_.wait(lock);
      continue;
    }
    if (advance()) continue;
    const Blockers known = blockers_;
    const uint32_t ticket = board_->announce(Board::waiting_for(known.taken, known.put));
    if (!advance() && blockers_ == known) {
      lock.unlock();
      board_->sleep(ticket, kNap);
      lock.lock();
    }
    board_->withdraw();
  }
}

}  // namespace lockstep::detail
