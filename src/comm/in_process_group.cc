// Ranks join an operation with the lock of the group held. Under this lock the group decides whether all ranks have
// joined, whether they disagree, and whether the group has failed. So an operation either gets all ranks, and then
// always completes, or never accesses the memory of any rank. After a failure no operation gets all ranks any more; the
// waiting ranks complete those that already had. So whichever way a rank leaves an operation, no thread accesses the
// memory of that rank afterwards.
#include "comm/in_process_group.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"
#include "comm/failure_text.h"
#include "lane/memory.h"
#include "lane/pause.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kInProcessSpin = std::chrono::microseconds(40);
constexpr auto kMaxInProcessWait = std::chrono::hours(24 * 365);  // added to the clock without overflow

// While one exists, threads that change the group wake the sleeping threads.
class Sleeper {
 public:
  explicit Sleeper(std::atomic<int>& sleepers) : sleepers_(sleepers) { sleepers_.fetch_add(1); }
  ~Sleeper() { sleepers_.fetch_sub(1); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  std::atomic<int>& sleepers_;
};

std::string text(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ", ")); }

bool overlap(const std::vector<int>& a, const std::vector<int>& b) {
  return std::ranges::any_of(a, [&](int rank) { return std::ranges::find(b, rank) != b.end(); });
}

}  // namespace

InProcessGroup::InProcessGroup(int size, std::string name, std::vector<int> members, std::string origin)
    : size_(size),
      name_(std::move(name)),
      origin_ranks_(std::move(members)),
      origin_name_(std::move(origin)),
      // With more ranks than CPUs a waiting rank must sleep, so that the rank it waits for can run.
      spins_(size <= available_cpus()),
      ring_(8),
      left_at_(static_cast<size_t>(size), std::numeric_limits<int64_t>::max()) {}

// Spins first: the lock is held for a fraction of a microsecond and wanted by all ranks at the same time, so sleeping
// would cost more than the operation.
std::unique_lock<std::mutex> InProcessGroup::lock() {
  std::unique_lock guard(mutex_, std::defer_lock);
  for (int i = 0; i < 64; ++i) {
    if (guard.try_lock()) return guard;
    pause();
  }
  guard.lock();
  return guard;
}

template <class Ready>
bool InProcessGroup::spin(Ready ready) const {
  if (ready()) return true;
  if (!spins_) return false;
  const auto end = Clock::now() + kInProcessSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause();
    }
    std::this_thread::yield();  // the awaited rank may need this CPU
  } while (Clock::now() < end);
  return false;
}

// A thread that will sleep increments the count before it checks its condition. A thread that changes something reads
// the count after the change. So one of the two sees the other. Taking the lock waits for a thread that has checked its
// condition and is about to sleep.
void InProcessGroup::wake() {
  if (sleepers_.load() == 0) return;
  lock().unlock();
  changed_.notify_all();
}

InProcessCollective& InProcessGroup::collective(int64_t number) {
  const auto at = [&](int64_t n) -> InProcessCollective*& {
    return ring_[static_cast<size_t>(n) & (ring_.size() - 1)];
  };
  while (at(number) && at(number)->number() != number) {
    std::vector<InProcessCollective*> in_flight =
        std::exchange(ring_, std::vector<InProcessCollective*>(ring_.size() * 2));
    for (InProcessCollective* collective : in_flight)
      if (collective) at(collective->number()) = collective;
  }
  InProcessCollective*& entry = at(number);
  if (!entry) {
    if (free_.empty()) {
      free_.reserve(collectives_.size() + 1);
      free_.push_back(collectives_.emplace_back(std::make_unique<InProcessCollective>(size_)).get());
    }
    entry = free_.back();
    free_.pop_back();
    entry->reset(number);
  }
  return *entry;
}

InProcessCollective* InProcessGroup::start(int rank, int64_t number, const Operation& operation) {
  std::unique_lock guard = lock();
  if (failed_.load()) throw_failure(rank, lockstep::name(operation.kind), number);
  if (any_rank_left_) {
    const auto gone = std::ranges::find_if(left_at_, [&](int64_t left_at) { return left_at <= number; });
    if (gone != left_at_.end()) {
      fail(Cause::aborted, fmt::format("rank {} has left the group", label(static_cast<int>(gone - left_at_.begin()))));
      throw_failure(rank, lockstep::name(operation.kind), number);
    }
  }
  InProcessCollective& collective = this->collective(number);
  check_agreement(collective, rank, operation);
  if (!collective.join(rank, operation)) return &collective;
  guard.unlock();
  if (collective.is_single_tile()) collective.run_tiles();
  wake();
  return &collective;
}

void InProcessGroup::check_agreement(const InProcessCollective& collective, int rank, const Operation& operation) {
  for (int other = 0; other < size_; ++other) {
    if (!collective.has_joined(other)) continue;
    if (!agree(collective.operation(other), other, operation, rank)) {
      const std::string theirs = describe(collective.operation(other)), own = describe(operation);
      const std::string message =
          rank < other ? mismatch_message(collective.number(), name_, label(rank), own, label(other), theirs)
                       : mismatch_message(collective.number(), name_, label(other), theirs, label(rank), own);
      fail(Cause::mismatch, message);
      throw Error(message);
    }
    // The ranks that have joined agree with each other, so one comparison is enough, except in all_to_all, where every
    // pair of ranks must agree on its counts.
    if (operation.kind != Operation::Kind::all_to_all) return;
  }
}

void InProcessGroup::finish(int rank, InProcessCollective* collective, Duration timeout) {
  if (!collective->all_joined()) wait_until_joined(rank, *collective, timeout);
  complete(*collective);
  release(collective);
}

void InProcessGroup::wait_until_joined(int rank, InProcessCollective& collective, Duration timeout) {
  const auto deadline = Clock::now() + std::min<Duration>(timeout, kMaxInProcessWait);
  if (spin([&] { return collective.all_joined() || failed_.load(); }) && collective.all_joined()) return;
  std::unique_lock guard = lock();
  {
    const Sleeper sleeper(sleepers_);
    while (!collective.all_joined() && !failed_.load())
      if (changed_.wait_until(guard, deadline) == std::cv_status::timeout) break;
  }
  if (collective.all_joined()) return;
  const std::string_view operation = lockstep::name(collective.operation(rank).kind);
  if (failed_.load()) throw_failure(rank, operation, collective.number());
  const std::string message = fmt::format(
      "{} {} on \"{}\": rank {} of {} waited {:.3g} s for {}; {}", operation, collective.number(), name_, label(rank),
      size_, std::chrono::duration<double>(timeout).count(), absent_ranks(collective), kTimeoutRemedy);
  fail(Cause::aborted, message);
  throw CommTimeout(message);
}

void InProcessGroup::complete(InProcessCollective& collective) {
  if (collective.done()) return;
  if (collective.run_tiles()) wake();
  if (spin([&] { return collective.done(); })) return;
  // No deadline: another thread is running its last tile, in this rank's memory, so this rank cannot give up.
  std::unique_lock guard = lock();
  const Sleeper sleeper(sleepers_);
  while (!collective.done()) changed_.wait(guard);
}

void InProcessGroup::release(InProcessCollective* collective) {
  if (!collective->leave()) return;
  const std::unique_lock guard = lock();
  ring_[static_cast<size_t>(collective->number()) & (ring_.size() - 1)] = nullptr;
  free_.push_back(collective);
}

void InProcessGroup::abandon(int rank, InProcessCollective* collective) {
  {
    const std::unique_lock guard = lock();
    if (!collective->all_joined()) {
      fail(Cause::aborted, fmt::format("rank {} did not wait for its {} {}", label(rank),
                                       lockstep::name(collective->operation(rank).kind), collective->number()));
      return;
    }
  }
  complete(*collective);
  release(collective);
}

void InProcessGroup::abort(int rank, const std::string& reason) {
  const std::unique_lock guard = lock();
  fail(Cause::aborted, fmt::format("rank {}: {}", label(rank), reason));
}

void InProcessGroup::leave(int rank, int64_t number) {
  const std::unique_lock guard = lock();
  left_at_[static_cast<size_t>(rank)] = number;
  any_rank_left_ = true;
  for (const InProcessCollective* collective : ring_)
    if (collective && collective->number() >= number)
      return fail(Cause::aborted, fmt::format("rank {} has left the group", label(rank)));
}

std::shared_ptr<InProcessGroup> InProcessGroup::join_split(int rank, const std::vector<int>& ranks,
                                                           const std::string& name) {
  const std::unique_lock guard = lock();
  if (failed_.load()) throw_failure(rank, "split", 0);
  for (size_t i = 0; i < pending_.size(); ++i) {
    PendingSplit& pending = pending_[i];
    if (pending.group->name() != name || !overlap(pending.ranks, ranks)) continue;
    if (pending.ranks != ranks) {
      const std::string message = fmt::format(
          "split: rank {} gave {} as the members of \"{}\", others gave {}; the members of a group must give the "
          "same list",
          label(rank), text(ranks), name, text(pending.ranks));
      fail(Cause::mismatch, message);
      throw Error(message);
    }
    if (std::erase(pending.absent, rank) == 0) continue;
    std::shared_ptr<InProcessGroup> group = pending.group;
    if (pending.absent.empty()) pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    return group;
  }
  std::vector<int> members;
  for (const int member : ranks)
    members.push_back(origin_ranks_.empty() ? member : origin_ranks_[static_cast<size_t>(member)]);
  auto group = std::make_shared<InProcessGroup>(static_cast<int>(ranks.size()), name, std::move(members),
                                                origin_ranks_.empty() ? name_ : origin_name_);
  std::erase_if(children_, [](const std::weak_ptr<InProcessGroup>& child) { return child.expired(); });
  children_.push_back(group);
  if (ranks.size() > 1) {
    pending_.push_back({ranks, ranks, group});
    std::erase(pending_.back().absent, rank);
  }
  return group;
}

// Lock order: a group before the groups that were split from it.
void InProcessGroup::fail(Cause cause, const std::string& message) {
  if (failed_.load()) return;
  cause_ = cause;
  failure_ = message;
  failed_.store(true);
  changed_.notify_all();
  for (const std::weak_ptr<InProcessGroup>& weak : children_)
    if (const std::shared_ptr<InProcessGroup> child = weak.lock()) {
      const std::unique_lock guard = child->lock();
      child->fail(cause, message);
    }
}

void InProcessGroup::throw_failure(int rank, std::string_view operation, int64_t number) const {
  if (cause_ == Cause::mismatch) throw Error(failure_);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", operation, number, name_,
                                label(rank), size_, failure_));
}

std::string InProcessGroup::label(int rank) const {
  if (origin_ranks_.empty()) return fmt::format("{}", rank);
  return fmt::format("{} ({} of \"{}\")", rank, origin_ranks_[static_cast<size_t>(rank)], origin_name_);
}

std::string InProcessGroup::absent_ranks(const InProcessCollective& collective) const {
  std::vector<std::string> absent;
  for (int rank = 0; rank < size_; ++rank)
    if (!collective.has_joined(rank)) absent.push_back(label(rank));
  return fmt::format("{} {}", absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "));
}

}  // namespace lockstep::detail
