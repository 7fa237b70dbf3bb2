#include "comm/shared/group.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>

#include "base/check.h"
#include "comm/failure_text.h"
#include "comm/shared/wait.h"
#include "lane/memory.h"

namespace lockstep::detail {

namespace {

using Kind = Operation::Kind;

// The start of a request in a slot; the lists follow 64 bytes after its start.
struct SlotRequest {
  uint64_t number;
  Kind kind;
  DType dtype;
  Reduction reduction;
  int32_t root;
  int64_t count, rounds;
  int64_t counts, receive_counts, routes;  // lengths of the lists that follow
};
static_assert(sizeof(SlotRequest) <= 64);

// Whether what another process wrote has valid enum values and sizes.
bool is_valid(const SlotRequest& request, int size) {
  constexpr int64_t kMaxRounds = int64_t{1} << 40;
  return request.rounds >= 1 && request.rounds <= kMaxRounds &&
         lockstep::is_valid({.kind = static_cast<int64_t>(request.kind),
                             .dtype = static_cast<int64_t>(request.dtype),
                             .reduction = static_cast<int64_t>(request.reduction),
                             .counts = request.counts,
                             .receive_counts = request.receive_counts,
                             .routes = request.routes},
                            size);
}

// With a pool, at most this many rounds are moved at once.
constexpr int64_t kMostRounds = 8;
// Fewer bytes are moved faster by one thread than a region of many begins and ends.
constexpr int64_t kParallelBytes = 128 << 10;
constexpr int64_t kPieceBytes = 8 << 10;

// The number of pieces of each round, so that every thread of the pool has work.
int64_t pieces_of(const Transfer& transfer, int64_t rounds, const Pool& pool) {
  const int64_t wanted = (pool.threads() + rounds - 1) / rounds;
  return std::clamp<int64_t>(transfer.round_bytes() / kPieceBytes, 1, wanted);
}

// Whether ranks may spin. With more ranks than CPUs they must sleep, so that the rank they wait for can run.
bool enough_cpus(const SegmentView& view) {
  int cpus = 0, here = 0;
  for (const auto& word : view.header().cpus) cpus += std::popcount(word.load());
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) == 0) here = CPU_COUNT(&own);
  // Ranks may be pinned to different CPUs, but a CPU quota applies to all of them together.
  if (const int available = available_cpus(); available < here || cpus == 0) cpus = available;
  return view.size() <= cpus;
}

}  // namespace

SharedGroup::SharedGroup(std::shared_ptr<SegmentView> view, std::string name, Ancestry ancestry)
    : view_(std::move(view)),
      name_(std::move(name)),
      ancestry_(std::move(ancestry)),
      rank_(view_->rank()),
      size_(view_->size()),
      spins_(enough_cpus(*view_)),
      ring_(8),
      slots_(static_cast<size_t>(size_ * kMostRounds)),
      inputs_(static_cast<size_t>(size_)) {}

SharedGroup::~SharedGroup() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (view_->own_state().stops_at.load() == 0) view_->own_state().stops_at.store(next_ + 1);
  }
  view_->wake_all();  // including this rank's helper
  helper_woken_.notify_all();
  if (helper_.joinable()) helper_.join();
}

std::string SharedGroup::label(int rank) const {
  if (ancestry_.origin_ranks.empty()) return fmt::format("{}", rank);
  return fmt::format("{} ({} of \"{}\")", rank, ancestry_.origin_ranks[static_cast<size_t>(rank)],
                     ancestry_.origin_name);
}

bool SharedGroup::failed() const {
  if (view_->failed()) return true;
  return std::ranges::any_of(ancestry_.ancestors, [](const auto& ancestors) { return ancestors->failed(); });
}

void SharedGroup::check_failure(std::string_view operation, uint64_t number) const {
  if (!failed()) return;
  std::optional<GroupFailure> failure = view_->failure();
  for (size_t i = 0; !failure; ++i) failure = ancestry_.ancestors[i]->failure();
  throw_failure(*failure, operation, static_cast<int64_t>(number), name_, label(rank_), size_);
}

bool SharedGroup::all_started(uint64_t number) const {
  for (int rank = 0; rank < size_; ++rank)
    if (view_->rank_state(rank).started.load() < number) return false;
  return true;
}

bool SharedGroup::has_stopped(uint64_t number, int* stopped_rank) const {
  for (int rank = 0; rank < size_; ++rank) {
    const uint64_t stops_at = view_->rank_state(rank).stops_at.load();
    if (stops_at == 0 || stops_at - 1 > number) continue;
    if (stopped_rank) *stopped_rank = rank;
    return true;
  }
  return false;
}

SharedGroup::PendingOperation* SharedGroup::allocate_pending() {
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    free_.push_back(all_.emplace_back(std::make_unique<PendingOperation>()).get());
  }
  PendingOperation* pending = free_.back();
  free_.pop_back();
  return pending;
}

SharedGroup::PendingOperation* SharedGroup::start(const Operation& operation, bool waits) {
  foreground_waiters_.fetch_add(1);
  const std::lock_guard lock(mutex_);
  foreground_waiters_.fetch_sub(1);
  if (int stopped_rank = 0; !failed() && has_stopped(next_, &stopped_rank))
    fail(FailureCause::aborted, fmt::format("rank {} has left the group", label(stopped_rank)));
  check_failure(lockstep::name(operation.kind), next_);
  if (next_ - reading_ >= ring_.size()) {
    std::vector<PendingOperation*> larger(ring_.size() * 2);
    for (uint64_t n = reading_; n < next_; ++n) larger[n & (larger.size() - 1)] = ring_[n & (ring_.size() - 1)];
    ring_ = std::move(larger);
  }
  PendingOperation* pending = allocate_pending();
  pending->transfer.begin(operation, rank_, size_, view_->geometry().room());
  pending->number = next_++;
  pending->written = pending->read = 0;
  pending->agreed = pending->done = false;
  ring_[pending->number & (ring_.size() - 1)] = pending;
  view_->own_state().started.store(pending->number);
  advance();
  if (!waits && needs_helper()) wake_helper();
  return pending;
}

bool SharedGroup::advance(Pool* pool) {
  blockers_ = {};
  const bool wrote = try_write(pool);
  const bool did_read = try_read(pool);
  if (wrote || did_read) view_->wake_waiting();
  return wrote || did_read;
}

int64_t SharedGroup::batch_of(const Transfer& transfer, int64_t ready, Pool*& pool) const {
  const int64_t rounds = std::min(ready, kMostRounds);
  if (pool && (pool->threads() < 2 || rounds * transfer.round_bytes() < kParallelBytes)) pool = nullptr;
  // Alone, one at a time, so that the other ranks can begin with it.
  return pool ? rounds : std::min<int64_t>(rounds, 1);
}

int64_t SharedGroup::writable_rounds(const PendingOperation& pending, Pool* pool) {
  if (pending.written > 0 && !pending.agreed) return 0;
  int64_t wanted = pending.transfer.writable_end(pending.read) - pending.written;
  if (!pool || !pending.agreed) wanted = std::min<int64_t>(wanted, 1);
  if (wanted <= 0) return 0;
  const auto slots = static_cast<uint64_t>(view_->geometry().slots);
  const auto free_slots = [&] { return static_cast<int64_t>(rounds_read_by_all_ + slots - rounds_written_); };
  if (free_slots() < std::min(wanted, kMostRounds)) {
    uint64_t least = ~uint64_t{0};
    int slowest = -1;
    for (int rank = 0; rank < size_; ++rank)
      if (const uint64_t rounds_read = view_->rank_state(rank).rounds_read.load(); rounds_read < least) {
        least = rounds_read;
        slowest = rank;
      }
    rounds_read_by_all_ = least;
    if (free_slots() == 0) blockers_.write = slowest;
  }
  return std::min(wanted, free_slots());
}

void SharedGroup::write_rounds(const PendingOperation& pending, int64_t rounds, Pool* pool) {
  const int64_t request_bytes = view_->geometry().request_bytes();
  const auto write = [&](int64_t round, Transfer::Piece piece) {
    std::byte* slot = view_->slot(rank_, rounds_written_ + static_cast<uint64_t>(round)) + request_bytes;
    pending.transfer.write(pending.written + round, slot, piece);
  };
  if (!pool) return write(0, Transfer::Piece());
  const int64_t pieces = pieces_of(pending.transfer, rounds, *pool);
  pool->parallel_for(rounds * pieces, [&](int64_t task, int) { write(task / pieces, {task % pieces, pieces}); });
}

bool SharedGroup::try_write(Pool* pool) {
  if (writing_ >= std::min(next_, dead_from_)) return false;
  PendingOperation& pending = this->pending(writing_);
  const int64_t rounds = batch_of(pending.transfer, writable_rounds(pending, pool), pool);
  if (rounds == 0) return false;
  if (pending.written == 0) write_request(pending, view_->slot(rank_, rounds_written_));
  write_rounds(pending, rounds, pool);
  pending.written += rounds;
  view_->own_state().rounds_written.store(rounds_written_ += static_cast<uint64_t>(rounds));
  // The number of rounds of an all_to_all is known only after the requests of all ranks are compared.
  const bool known = pending.agreed || pending.transfer.operation().kind != Kind::all_to_all;
  if (known && pending.written == pending.transfer.rounds()) ++writing_;
  return true;
}

int64_t SharedGroup::readable_rounds(const PendingOperation& pending, Pool* pool) {
  if (pending.read >= pending.written) return 0;
  for (; ready_ranks_ < size_; ++ready_ranks_)
    if (view_->rank_state(ready_ranks_).rounds_written.load() <= rounds_read_) {
      blockers_.read = ready_ranks_;
      return 0;
    }
  if (!pool) return 1;
  auto ready = static_cast<uint64_t>(pending.written - pending.read);
  for (int rank = 0; rank < size_; ++rank)
    ready = std::min(ready, view_->rank_state(rank).rounds_written.load() - rounds_read_);
  return static_cast<int64_t>(ready);
}

void SharedGroup::read_rounds(const PendingOperation& pending, int64_t rounds, Pool* pool) {
  const auto size = static_cast<size_t>(size_), count = static_cast<size_t>(rounds);
  const size_t threads = pool ? static_cast<size_t>(pool->threads()) : 1;
  if (inputs_.size() < threads * size) inputs_.resize(threads * size);
  for (size_t round = 0; round < count; ++round)
    for (int rank = 0; rank < size_; ++rank)
      slots_[round * size + static_cast<size_t>(rank)] =
          view_->slot(rank, rounds_read_ + round) + view_->geometry().request_bytes();
  const auto read = [&](int64_t round, int thread, Transfer::Piece piece) {
    pending.transfer.read(pending.read + round, std::span(slots_).subspan(static_cast<size_t>(round) * size, size),
                          std::span(inputs_).subspan(static_cast<size_t>(thread) * size, size), piece);
  };
  if (!pool) return read(0, 0, Transfer::Piece());
  const int64_t pieces = pieces_of(pending.transfer, rounds, *pool);
  pool->parallel_for(rounds * pieces, [&](int64_t task, int thread) {
    read(task / pieces, thread, {task % pieces, pieces});
  });
}

bool SharedGroup::try_read(Pool* pool) {
  if (reading_ >= std::min(next_, dead_from_)) return false;
  PendingOperation& pending = this->pending(reading_);
  const int64_t ready = readable_rounds(pending, pool);
  if (ready == 0) return false;
  if (!pending.agreed) {
    compare_requests(pending);
    if (!pending.agreed) return false;
  }
  const int64_t rounds = batch_of(pending.transfer, ready, pool);
  read_rounds(pending, rounds, pool);
  pending.read += rounds;
  ready_ranks_ = 0;
  view_->own_state().rounds_read.store(rounds_read_ += static_cast<uint64_t>(rounds));
  if (writing_ == pending.number && pending.written == pending.transfer.rounds()) ++writing_;
  if (pending.read == pending.transfer.rounds()) {
    pending.done = true;
    ++reading_;
  }
  return true;
}

void SharedGroup::write_request(const PendingOperation& pending, std::byte* slot) const {
  const Operation& operation = pending.transfer.operation();
  const SlotRequest header{pending.number,
                           operation.kind,
                           operation.dtype,
                           operation.reduction,
                           operation.root,
                           operation.count,
                           pending.transfer.rounds(),
                           static_cast<int64_t>(operation.counts.size()),
                           static_cast<int64_t>(operation.receive_counts.size()),
                           static_cast<int64_t>(operation.routes.size())};
  std::memcpy(slot, &header, sizeof header);
  slot += 64;
  const auto add = [&](const auto& list) {
    if (!list.empty()) std::memcpy(slot, list.data(), list.size_bytes());
    slot += list.size_bytes();
  };
  add(operation.counts);
  add(operation.receive_counts);
  add(operation.routes);
}

std::optional<Operation> SharedGroup::read_request(const std::byte* slot, int64_t& rounds) const {
  SlotRequest header;
  std::memcpy(&header, slot, sizeof header);
  slot += 64;
  if (!is_valid(header, size_)) return std::nullopt;
  const auto next = [&]<class T>(int64_t count, T) {
    const std::span<const T> list(reinterpret_cast<const T*>(slot), static_cast<size_t>(count));
    slot += list.size_bytes();
    return list;
  };
  rounds = header.rounds;
  Operation operation{.kind = header.kind,
                      .dtype = header.dtype,
                      .reduction = header.reduction,
                      .root = header.root,
                      .count = header.count};
  operation.counts = next(header.counts, int64_t{});
  operation.receive_counts = next(header.receive_counts, int64_t{});
  operation.routes = next(header.routes, Route{});
  return operation;
}

// All ranks come to the same result. In all_to_all every pair of ranks must agree on its counts, so all pairs are
// compared.
void SharedGroup::compare_requests(PendingOperation& pending) {
  int64_t rounds = pending.transfer.rounds(), peer_rounds = 0;
  const auto request_of = [&](int rank) { return read_request(view_->slot(rank, rounds_read_), peer_rounds); };
  const Operation& mine = pending.transfer.operation();
  const auto text = [](const std::optional<Operation>& operation) {
    return operation ? describe(*operation) : std::string("an invalid operation");
  };
  const auto disagree = [&](int a, const std::optional<Operation>& of_a, int b, const std::optional<Operation>& of_b) {
    disagreed_ = true;
    fail(FailureCause::mismatch,
         mismatch_message(static_cast<int64_t>(pending.number), name_, label(a), text(of_a), label(b), text(of_b)));
  };
  const bool all_to_all = mine.kind == Kind::all_to_all;
  for (int rank = 0; rank < size_; ++rank) {
    const std::optional<Operation> other = request_of(rank);
    // For other operations every rank computes the same number of rounds.
    if (other && all_to_all) rounds = std::max(rounds, peer_rounds);
    if (other && agree(mine, rank_, *other, rank)) continue;
    return rank < rank_ ? disagree(rank, other, rank_, mine) : disagree(rank_, mine, rank, other);
  }
  if (all_to_all)
    for (int a = 0; a < size_; ++a)
      for (int b = a + 1; b < size_; ++b)
        if (const auto of_a = request_of(a), of_b = request_of(b); !of_a || !of_b || !agree(*of_a, a, *of_b, b))
          return disagree(a, of_a, b, of_b);
  pending.transfer.set_rounds(rounds);
  pending.agreed = true;
}

}  // namespace lockstep::detail
