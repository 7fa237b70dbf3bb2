// A round of rank r is in slot (round modulo slots) of r: r writes it when all ranks have taken the round that was
// there, and says so in `arrived`; a rank that has read it from all says so in `finished`. The first round of an
// operation has a head, which says what the rank asked for; nothing else of an operation is put before all heads agree.
#include "comm/shared/group.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>

#include "base/check.h"
#include "comm/shared/wait.h"
#include "lane/memory.h"
#include "lane/pause.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;
using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(60);

struct Head {
  uint64_t number;
  Kind kind;
  DType dtype;
  Reduction reduction;
  int32_t root;
  int64_t count, rounds;
  int64_t counts, receive_counts, routes;  // how many of each follow
};
static_assert(sizeof(Head) <= 64);

// Whether spinning steals nobody's time: with more ranks than cpus, sleeping is what lets the one waited for run.
bool enough_cpus(const Board& board) {
  int cpus = 0, here = 0;
  for (const auto& word : board.control().cpus) cpus += std::popcount(word.load());
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) == 0) here = CPU_COUNT(&own);
  // Ranks may be bound to cpus of their own; a quota counts for all of them.
  if (const int available = available_cpus(); available < here || cpus == 0) cpus = available;
  return board.size() <= cpus;
}

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
    spin_until_ = now + kSpin;
    next_look_ = now + kLookInterval;
    deadline_ = deadline_after(timeout_);
  }

  const bool spins_;
  const Duration timeout_;
  bool began_ = false;
  int looks_ = 0;
  Clock::time_point spin_until_, next_look_, deadline_;
};

SharedGroup::SharedGroup(std::shared_ptr<Board> board, std::string name, Ancestry ancestry)
    : board_(std::move(board)),
      name_(std::move(name)),
      ancestry_(std::move(ancestry)),
      rank_(board_->rank()),
      size_(board_->size()),
      spins_(enough_cpus(*board_)),
      ring_(8),
      slots_(static_cast<size_t>(size_)),
      inputs_(static_cast<size_t>(size_)) {}

SharedGroup::~SharedGroup() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (board_->mine().ends_at.load() == 0) board_->mine().ends_at.store(next_ + 1);
  }
  board_->wake_all();  // its own helper too
  called_.notify_all();
  if (helper_.joinable()) helper_.join();
}

std::string SharedGroup::label(int rank) const {
  if (ancestry_.members.empty()) return fmt::format("{}", rank);
  return fmt::format("{} ({} of \"{}\")", rank, ancestry_.members[static_cast<size_t>(rank)], ancestry_.origin);
}

bool SharedGroup::failed() const {
  if (board_->failed()) return true;
  return std::ranges::any_of(ancestry_.above, [](const auto& above) { return above->failed(); });
}

void SharedGroup::check_failure(std::string_view operation, uint64_t number) const {
  if (!failed()) return;
  std::optional<Failure> failure = board_->failure();
  for (size_t i = 0; !failure; ++i) failure = ancestry_.above[i]->failure();
  throw_failure(*failure, operation, static_cast<int64_t>(number), name_, label(rank_), size_);
}

bool SharedGroup::all_started(uint64_t number) const {
  for (int rank = 0; rank < size_; ++rank)
    if (board_->place(rank).started.load() < number) return false;
  return true;
}

bool SharedGroup::ended(uint64_t number, int* who) const {
  for (int rank = 0; rank < size_; ++rank) {
    const uint64_t ends_at = board_->place(rank).ends_at.load();
    if (ends_at == 0 || ends_at - 1 > number) continue;
    if (who) *who = rank;
    return true;
  }
  return false;
}

SharedGroup::Pending* SharedGroup::take_free() {
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    free_.push_back(all_.emplace_back(std::make_unique<Pending>()).get());
  }
  Pending* pending = free_.back();
  free_.pop_back();
  return pending;
}

SharedGroup::Pending* SharedGroup::start(const Operation& operation, bool waits) {
  wanted_.fetch_add(1);
  const std::lock_guard lock(mutex_);
  wanted_.fetch_sub(1);
  if (int who = 0; !failed() && ended(next_, &who))
    fail(Cause::aborted, fmt::format("rank {} has left the group", label(who)));
  check_failure(lockstep::name(operation.kind), next_);
  if (next_ - taking_ >= ring_.size()) {
    std::vector<Pending*> larger(ring_.size() * 2);
    for (uint64_t n = taking_; n < next_; ++n) larger[n & (larger.size() - 1)] = ring_[n & (ring_.size() - 1)];
    ring_ = std::move(larger);
  }
  Pending* pending = take_free();
  pending->transfer.begin(operation, rank_, size_, board_->geometry().room());
  pending->number = next_++;
  pending->put = pending->taken = 0;
  pending->agreed = pending->done = false;
  ring_[pending->number & (ring_.size() - 1)] = pending;
  board_->mine().started.store(pending->number);
  advance();
  if (!waits && needs_help()) call_helper();
  return pending;
}

// One round of each, if possible.
bool SharedGroup::advance() {
  blockers_ = {};
  const bool put = try_put();
  const bool taken = try_take();
  if (put || taken) board_->wake_waiting();
  return put || taken;
}

bool SharedGroup::try_put() {
  if (putting_ >= std::min(next_, end_)) return false;
  Pending& pending = this->pending(putting_);
  if (pending.put > 0 && !pending.agreed) return false;
  if (pending.taken < pending.transfer.needs_taken(pending.put)) return false;
  const auto slots = static_cast<uint64_t>(board_->geometry().slots);
  if (put_rounds_ >= free_rounds_ + slots) {
    uint64_t least = ~uint64_t{0};
    for (int rank = 0; rank < size_; ++rank)
      if (const uint64_t finished = board_->place(rank).finished.load(); finished < least) {
        least = finished;
        blockers_.put = rank;
      }
    free_rounds_ = least;
    if (put_rounds_ >= free_rounds_ + slots) return false;
    blockers_.put = -1;
  }
  std::byte* slot = board_->slot(rank_, put_rounds_);
  if (pending.put == 0) write_head(pending, slot);
  pending.transfer.put(pending.put, slot + board_->geometry().head_bytes());
  ++pending.put;
  board_->mine().arrived.store(++put_rounds_);
  // Of all_to_all it is known only together how long it is.
  const bool known = pending.agreed || pending.transfer.operation().kind != Kind::all_to_all;
  if (known && pending.put == pending.transfer.rounds()) ++putting_;
  return true;
}

bool SharedGroup::try_take() {
  if (taking_ >= std::min(next_, end_)) return false;
  Pending& pending = this->pending(taking_);
  if (pending.taken >= pending.put) return false;
  for (; arrived_ < size_; ++arrived_)
    if (board_->place(arrived_).arrived.load() <= taken_rounds_) {
      blockers_.taken = arrived_;
      return false;
    }
  for (int rank = 0; rank < size_; ++rank)
    slots_[static_cast<size_t>(rank)] = board_->slot(rank, taken_rounds_) + board_->geometry().head_bytes();
  if (!pending.agreed) {
    agree_on(pending);
    if (!pending.agreed) return false;
  }
  pending.transfer.take(pending.taken, slots_, inputs_);
  ++pending.taken;
  arrived_ = 0;
  board_->mine().finished.store(++taken_rounds_);
  if (putting_ == pending.number && pending.put == pending.transfer.rounds()) ++putting_;
  if (pending.taken == pending.transfer.rounds()) {
    pending.done = true;
    ++taking_;
  }
  return true;
}

void SharedGroup::write_head(const Pending& pending, std::byte* slot) const {
  const Operation& operation = pending.transfer.operation();
  const Head head{pending.number,
                  operation.kind,
                  operation.dtype,
                  operation.reduction,
                  operation.root,
                  operation.count,
                  pending.transfer.rounds(),
                  static_cast<int64_t>(operation.counts.size()),
                  static_cast<int64_t>(operation.receive_counts.size()),
                  static_cast<int64_t>(operation.routes.size())};
  std::memcpy(slot, &head, sizeof head);
  slot += 64;
  const auto add = [&](const auto& list) {
    if (!list.empty()) std::memcpy(slot, list.data(), list.size_bytes());
    slot += list.size_bytes();
  };
  add(operation.counts);
  add(operation.receive_counts);
  add(operation.routes);
}

Operation SharedGroup::read_head(const std::byte* slot, int64_t& rounds) const {
  Head head;
  std::memcpy(&head, slot, sizeof head);
  slot += 64;
  const auto next = [&]<class T>(int64_t count, T) {
    const std::span<const T> list(reinterpret_cast<const T*>(slot), static_cast<size_t>(count));
    slot += list.size_bytes();
    return list;
  };
  rounds = head.rounds;
  Operation operation{
      .kind = head.kind, .dtype = head.dtype, .reduction = head.reduction, .root = head.root, .count = head.count};
  operation.counts = next(head.counts, int64_t{});
  operation.receive_counts = next(head.receive_counts, int64_t{});
  operation.routes = next(head.routes, Route{});
  return operation;
}

// Everybody finds the same: in all_to_all each pair has something of its own to agree on, so all pairs are looked at.
void SharedGroup::agree_on(Pending& pending) {
  int64_t rounds = pending.transfer.rounds(), its_rounds = 0;
  const auto asked = [&](int rank) { return read_head(board_->slot(rank, taken_rounds_), its_rounds); };
  const Operation& mine = pending.transfer.operation();
  const auto disagree = [&](int a, const Operation& of_a, int b, const Operation& of_b) {
    disagreed_ = true;
    fail(Cause::mismatch,
         fmt::format(
             "operation {} on \"{}\": rank {} asked for {}, rank {} asked for {}; the ranks of a group must make "
             "the same calls with the same sizes in the same order",
             pending.number, name_, label(a), describe(of_a), label(b), describe(of_b)));
  };
  for (int rank = 0; rank < size_; ++rank) {
    const Operation other = asked(rank);
    rounds = std::max(rounds, its_rounds);
    if (agree(mine, rank_, other, rank)) continue;
    return rank < rank_ ? disagree(rank, other, rank_, mine) : disagree(rank_, mine, rank, other);
  }
  if (mine.kind == Kind::all_to_all)
    for (int a = 0; a < size_; ++a)
      for (int b = a + 1; b < size_; ++b)
        if (const Operation of_a = asked(a), of_b = asked(b); !agree(of_a, a, of_b, b))
          return disagree(a, of_a, b, of_b);
  pending.transfer.set_rounds(rounds);
  pending.agreed = true;
}

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

void SharedGroup::drive(Pending& pending, Duration timeout) {
  Patience patience(timeout, spins_);
  while (!pending.done) {
    if (pending.number < end_ && advance()) {
      patience.renew();
      continue;
    }
    check_peers(pending);
    if (patience.may_spin()) {
      for (int i = 0; i < 32; ++i) {
        if (advance()) {
          patience.renew();
          break;
        }
        pause();
      }
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
  const ProcessId gone = board_->place(rank).process;
  fail(Cause::aborted, fmt::format("rank {} (process {}) is gone", label(rank), gone.pid));
  const auto clean = [&](const Board& board) {
    for (int other = 0; other < board.size(); ++other)
      if (const Place& place = board.place(other); place.process == gone && place.split_segment[0] != '\0')
        shm_unlink(place.split_segment);
  };
  clean(*board_);
  for (const auto& above : ancestry_.above) clean(*above);
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
