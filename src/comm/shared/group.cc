// A round of rank r is in slot (round modulo slots) of r: r writes it when all ranks have taken the round that was
// there, and says so in `arrived`; a rank that has read it from all says so in `finished`. The first round of an
// operation has a head, which says what the rank asked for; nothing else of an operation is put before all heads agree.
#include "comm/shared/group.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>

#include "base/check.h"
#include "comm/shared/wait.h"
#include "lane/memory.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;

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

// Whether numbers that another process wrote can be used as sizes and names of kinds.
bool is_sane(const Head& head, int size) {
  constexpr int64_t kMostRounds = int64_t{1} << 40;
  const auto list = [&](int64_t count) { return count == 0 || count == size; };
  const bool named =
      head.kind <= Kind::split && static_cast<int>(head.dtype) < kDTypeCount && head.reduction <= Reduction::min;
  if (!named || head.rounds < 1 || head.rounds > kMostRounds) return false;
  if (!list(head.counts) || !list(head.receive_counts) || head.routes < 0 || head.routes > size) return false;
  return head.kind != Kind::all_to_all || (head.counts == size && head.receive_counts == size);
}

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

std::optional<Operation> SharedGroup::read_head(const std::byte* slot, int64_t& rounds) const {
  Head head;
  std::memcpy(&head, slot, sizeof head);
  slot += 64;
  if (!is_sane(head, size_)) return std::nullopt;
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
  const auto text = [](const std::optional<Operation>& operation) {
    return operation ? describe(*operation) : std::string("something unknown");
  };
  const auto disagree = [&](int a, const std::optional<Operation>& of_a, int b, const std::optional<Operation>& of_b) {
    disagreed_ = true;
    fail(Cause::mismatch,
         fmt::format(
             "operation {} on \"{}\": rank {} asked for {}, rank {} asked for {}; the ranks of a group must make "
             "the same calls with the same sizes in the same order",
             pending.number, name_, label(a), text(of_a), label(b), text(of_b)));
  };
  const bool all_to_all = mine.kind == Kind::all_to_all;
  for (int rank = 0; rank < size_; ++rank) {
    const std::optional<Operation> other = asked(rank);
    // Elsewhere all know how many there are.
    if (other && all_to_all) rounds = std::max(rounds, its_rounds);
    if (other && agree(mine, rank_, *other, rank)) continue;
    return rank < rank_ ? disagree(rank, other, rank_, mine) : disagree(rank_, mine, rank, other);
  }
  if (all_to_all)
    for (int a = 0; a < size_; ++a)
      for (int b = a + 1; b < size_; ++b)
        if (const auto of_a = asked(a), of_b = asked(b); !of_a || !of_b || !agree(*of_a, a, *of_b, b))
          return disagree(a, of_a, b, of_b);
  pending.transfer.set_rounds(rounds);
  pending.agreed = true;
}

}  // namespace lockstep::detail
