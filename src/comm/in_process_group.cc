// Ranks meet under the group's lock, once per operation and rank: there the number of those who came, disagreement and
// failure are decided, so that an operation either opens, and then always completes, or never touches anybody's memory.
// Once the group has failed no operation opens any more; one that had opened is completed by those who wait for it.
// So whichever way a rank leaves an operation, nobody touches its memory afterwards.
#include "comm/in_process_group.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"
#include "lane/memory.h"
#include "lane/pause.h"

namespace lockstep::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMeetingSpin = std::chrono::microseconds(40);
constexpr auto kLongestMeeting = std::chrono::hours(24 * 365);  // added to the clock without overflow

// While it lives, those who change something wake the sleepers.
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

Group::Group(int size, std::string name, std::vector<int> members, std::string origin)
    : size_(size),
      name_(std::move(name)),
      members_(std::move(members)),
      origin_(std::move(origin)),
      // With more ranks than cpus, sleeping is what lets the one waited for run, and a sleeper is resumed sooner than
      // one that spins.
      spins_(size <= available_cpus()),
      ring_(8),
      left_at_(static_cast<size_t>(size), std::numeric_limits<int64_t>::max()) {}

// Held for a fraction of a microsecond, and wanted by all ranks at the same moment: going to sleep over it would cost
// more than the operation.
std::unique_lock<std::mutex> Group::lock() {
  std::unique_lock guard(mutex_, std::defer_lock);
  for (int i = 0; i < 64; ++i) {
    if (guard.try_lock()) return guard;
    pause();
  }
  guard.lock();
  return guard;
}

template <class Ready>
bool Group::spin(Ready ready) const {
  if (ready()) return true;
  if (!spins_) return false;
  const auto end = Clock::now() + kMeetingSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause();
    }
    std::this_thread::yield();  // the one waited for may be waiting for this cpu
  } while (Clock::now() < end);
  return false;
}

// A sleeper counts itself before it looks, and whoever changes something looks at the count after the change: one of
// the two sees the other. Taking the lock waits for a sleeper that has looked and is about to sleep.
void Group::wake() {
  if (sleepers_.load() == 0) return;
  lock().unlock();
  changed_.notify_all();
}

Meeting& Group::meeting(int64_t number) {
  const auto at = [&](int64_t n) -> Meeting*& { return ring_[static_cast<size_t>(n) & (ring_.size() - 1)]; };
  while (at(number) && at(number)->number() != number) {
    std::vector<Meeting*> under_way = std::exchange(ring_, std::vector<Meeting*>(ring_.size() * 2));
    for (Meeting* meeting : under_way)
      if (meeting) at(meeting->number()) = meeting;
  }
  Meeting*& place = at(number);
  if (!place) {
    if (free_.empty()) {
      free_.reserve(meetings_.size() + 1);
      free_.push_back(meetings_.emplace_back(std::make_unique<Meeting>(size_)).get());
    }
    place = free_.back();
    free_.pop_back();
    place->reset(number);
  }
  return *place;
}

Meeting* Group::start(int rank, int64_t number, const Operation& operation) {
  std::unique_lock guard = lock();
  if (failed_.load()) throw_failure(rank, lockstep::name(operation.kind), number);
  if (somebody_left_) {
    const auto gone = std::ranges::find_if(left_at_, [&](int64_t left_at) { return left_at <= number; });
    if (gone != left_at_.end()) {
      fail(Cause::aborted, fmt::format("rank {} has left the group", label(static_cast<int>(gone - left_at_.begin()))));
      throw_failure(rank, lockstep::name(operation.kind), number);
    }
  }
  Meeting& meeting = this->meeting(number);
  check_agreement(meeting, rank, operation);
  if (!meeting.join(rank, operation)) return &meeting;
  guard.unlock();
  if (meeting.small()) meeting.help();
  wake();
  return &meeting;
}

void Group::check_agreement(const Meeting& meeting, int rank, const Operation& operation) {
  for (int other = 0; other < size_; ++other) {
    if (!meeting.came(other)) continue;
    if (!agree(meeting.operation(other), other, operation, rank)) {
      std::string first = fmt::format("rank {} asked for {}", label(other), describe(meeting.operation(other)));
      std::string second = fmt::format("rank {} asked for {}", label(rank), describe(operation));
      if (rank < other) std::swap(first, second);
      const std::string message = fmt::format(
          "operation {} on \"{}\": {}, {}; the ranks of a group must make the same calls with the same sizes in the "
          "same order",
          meeting.number(), name_, first, second);
      fail(Cause::mismatch, message);
      throw Error(message);
    }
    // Those who came agree with one another; only in all_to_all has each pair something of its own to agree on.
    if (operation.kind != Operation::Kind::all_to_all) return;
  }
}

void Group::finish(int rank, Meeting* meeting, Duration timeout) {
  if (!meeting->open()) await(rank, *meeting, timeout);
  complete(*meeting);
  release(meeting);
}

void Group::await(int rank, Meeting& meeting, Duration timeout) {
  const auto deadline = Clock::now() + std::min<Duration>(timeout, kLongestMeeting);
  if (spin([&] { return meeting.open() || failed_.load(); }) && meeting.open()) return;
  std::unique_lock guard = lock();
  {
    const Sleeper sleeper(sleepers_);
    while (!meeting.open() && !failed_.load())
      if (changed_.wait_until(guard, deadline) == std::cv_status::timeout) break;
  }
  if (meeting.open()) return;
  const std::string_view operation = lockstep::name(meeting.operation(rank).kind);
  if (failed_.load()) throw_failure(rank, operation, meeting.number());
  const std::string message = fmt::format(
      "{} {} on \"{}\": rank {} of {} waited {:.3g} s for {}; see there what they do or how they ended, or "
      "raise the timeout if they are only slow",
      operation, meeting.number(), name_, label(rank), size_, std::chrono::duration<double>(timeout).count(),
      missing(meeting));
  fail(Cause::aborted, message);
  throw CommTimeout(message);
}

void Group::complete(Meeting& meeting) {
  if (meeting.done()) return;
  if (meeting.help()) wake();
  if (spin([&] { return meeting.done(); })) return;
  // Without a deadline, because there is nothing to give up: another thread is inside its last tile, in our memory.
  std::unique_lock guard = lock();
  const Sleeper sleeper(sleepers_);
  while (!meeting.done()) changed_.wait(guard);
}

void Group::release(Meeting* meeting) {
  if (!meeting->leave()) return;
  const std::unique_lock guard = lock();
  ring_[static_cast<size_t>(meeting->number()) & (ring_.size() - 1)] = nullptr;
  free_.push_back(meeting);
}

void Group::abandon(int rank, Meeting* meeting) {
  {
    const std::unique_lock guard = lock();
    if (!meeting->open()) {
      fail(Cause::aborted, fmt::format("rank {} did not wait for its {} {}", label(rank),
                                       lockstep::name(meeting->operation(rank).kind), meeting->number()));
      return;
    }
  }
  complete(*meeting);
  release(meeting);
}

void Group::abort(int rank, const std::string& reason) {
  const std::unique_lock guard = lock();
  fail(Cause::aborted, fmt::format("rank {}: {}", label(rank), reason));
}

void Group::leave(int rank, int64_t number) {
  const std::unique_lock guard = lock();
  left_at_[static_cast<size_t>(rank)] = number;
  somebody_left_ = true;
  for (const Meeting* meeting : ring_)
    if (meeting && meeting->number() >= number)
      return fail(Cause::aborted, fmt::format("rank {} has left the group", label(rank)));
}

std::shared_ptr<Group> Group::join(int rank, const std::vector<int>& ranks, const std::string& name) {
  const std::unique_lock guard = lock();
  if (failed_.load()) throw_failure(rank, "split", 0);
  for (size_t i = 0; i < pending_.size(); ++i) {
    Pending& pending = pending_[i];
    if (pending.group->name() != name || !overlap(pending.ranks, ranks)) continue;
    if (pending.ranks != ranks) {
      const std::string message =
          fmt::format("split: rank {} wants \"{}\" to be {}, others {}; the members of a group must give the same list",
                      label(rank), name, text(ranks), text(pending.ranks));
      fail(Cause::mismatch, message);
      throw Error(message);
    }
    if (std::erase(pending.absent, rank) == 0) continue;
    std::shared_ptr<Group> group = pending.group;
    if (pending.absent.empty()) pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    return group;
  }
  std::vector<int> members;
  for (const int member : ranks) members.push_back(members_.empty() ? member : members_[static_cast<size_t>(member)]);
  auto group = std::make_shared<Group>(static_cast<int>(ranks.size()), name, std::move(members),
                                       members_.empty() ? name_ : origin_);
  std::erase_if(children_, [](const std::weak_ptr<Group>& child) { return child.expired(); });
  children_.push_back(group);
  if (ranks.size() > 1) {
    pending_.push_back({ranks, ranks, group});
    std::erase(pending_.back().absent, rank);
  }
  return group;
}

// Locks go from a group to those split from it, never back.
void Group::fail(Cause cause, const std::string& message) {
  if (failed_.load()) return;
  cause_ = cause;
  failure_ = message;
  failed_.store(true);
  changed_.notify_all();
  for (const std::weak_ptr<Group>& weak : children_)
    if (const std::shared_ptr<Group> child = weak.lock()) {
      const std::unique_lock guard = child->lock();
      child->fail(cause, message);
    }
}

void Group::throw_failure(int rank, std::string_view operation, int64_t number) const {
  if (cause_ == Cause::mismatch) throw Error(failure_);
  throw CommAborted(fmt::format("{} {} on \"{}\": rank {} of {} stops; first cause: {}", operation, number, name_,
                                label(rank), size_, failure_));
}

std::string Group::label(int rank) const {
  if (members_.empty()) return fmt::format("{}", rank);
  return fmt::format("{} ({} of \"{}\")", rank, members_[static_cast<size_t>(rank)], origin_);
}

std::string Group::missing(const Meeting& meeting) const {
  std::vector<std::string> absent;
  for (int rank = 0; rank < size_; ++rank)
    if (!meeting.came(rank)) absent.push_back(label(rank));
  return fmt::format("{} {}", absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "));
}

}  // namespace lockstep::detail
