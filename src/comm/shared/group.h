// SharedGroup: one rank of a group on one host, and the execution of its operations.
//
// An operation is executed in rounds (see Transfer). In round k every rank writes into one of its own slots, and reads
// from the slots of all ranks once all have written that round:
//
//   slot of rank r for round k:  k modulo slots. Rank r overwrites it once all ranks have read round k - slots.
//   RankState::rounds_written:   rounds that the rank has written, counted over all operations
//   RankState::rounds_read:      rounds that the rank has read from all slots, counted over all operations
//
// The first round of an operation starts with a request: what the rank asks for. Later rounds are written only after
// the requests of all ranks agree. Rounds of successive operations follow each other in the order of their numbers.
//
// Each rank copies and reduces only into its own memory. The thread that waits for an operation does this work, together
// with the threads of a pool if it has one and there is enough to do: they divide several rounds into pieces. A helper
// thread does it alone when other ranks may be blocked by this rank while it computes; otherwise the helper sleeps.
//
// Thread safety: as Comm. fail() may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/operation.h"
#include "comm/shared/segment_view.h"
#include "comm/shared/transfer.h"
#include "lane/pool.h"

namespace lockstep::detail {

class SharedGroup {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::nanoseconds;

  struct PendingOperation {
    Transfer transfer;
    uint64_t number = 0;
    int64_t written = 0, read = 0;  // rounds of this operation
    bool agreed = false;            // the requests of all ranks agree
    bool done = false;
  };

  // The groups that this one was split from, directly and indirectly. Empty for the first ("origin") group.
  struct Ancestry {
    std::vector<int> origin_ranks = {};  // for each rank of this group, its rank in the origin group
    std::string origin_name = {};
    std::vector<std::shared_ptr<SegmentView>> ancestors = {};  // when one of them fails, this group has failed
  };
  SharedGroup(std::shared_ptr<SegmentView> view, std::string name, Ancestry ancestry);

  // The rank leaves the group. REQUIRES: no operation is in flight.
  ~SharedGroup();

  const std::shared_ptr<SegmentView>& view() const { return view_; }
  const Ancestry& ancestry() const { return ancestry_; }
  // The name of a rank in messages: `3`, or `1 (3 of "world")` in a group that was split off.
  std::string label(int rank) const;

  // The operations of Comm. `waits`: the caller calls finish() immediately. The threads of `pool` help; null: none.
  PendingOperation* start(const Operation& operation, bool waits);
  void finish(PendingOperation* pending, Duration timeout, Pool* pool = nullptr);
  void abandon(PendingOperation* pending, Duration timeout) noexcept;

  void fail(FailureCause cause, const std::string& message) { view_->fail(cause, message); }
  // Fails the group because the process of this rank has ended.
  void fail_dead_rank(int rank);
  // Throws the failure of this group or of an ancestor, if there is one.
  void check_failure(std::string_view operation, uint64_t number) const;

 private:
  // The ranks that block progress: those that have not read what the next write would overwrite, and those that have
  // not written what this rank reads next. -1: none.
  struct Blockers {
    int write = -1, read = -1;
    bool operator==(const Blockers&) const = default;
  };
  class WaitTimer;
  class ForegroundLock;

  PendingOperation& pending(uint64_t number) { return *ring_[number & (ring_.size() - 1)]; }
  PendingOperation* allocate_pending();
  void release(PendingOperation* pending) { free_.push_back(pending); }

  // Writes and reads at most one round each, or with a pool a few. Returns whether it made progress, and sets blockers_.
  bool advance(Pool* pool = nullptr);
  bool spin_advance(Pool* pool);
  bool try_write(Pool* pool);
  bool try_read(Pool* pool);
  // Of `ready` rounds, the number to move at once, and whether the pool moves them.
  int64_t batch_of(const Transfer& transfer, int64_t ready, Pool*& pool) const;
  // Rounds that may be written now, at most as many as are useful; sets blockers_.write if there are none.
  int64_t writable_rounds(const PendingOperation& pending, Pool* pool);
  int64_t readable_rounds(const PendingOperation& pending, Pool* pool);
  void write_rounds(const PendingOperation& pending, int64_t rounds, Pool* pool);
  void read_rounds(const PendingOperation& pending, int64_t rounds, Pool* pool);
  void compare_requests(PendingOperation& pending);
  void write_request(const PendingOperation& pending, std::byte* slot) const;
  // The request of another rank. Returns nullopt when the bytes are not a valid request.
  std::optional<Operation> read_request(const std::byte* slot, int64_t& rounds) const;

  void run_until_done(PendingOperation& pending, Duration timeout, Pool* pool);
  void sleep_until_woken(WaitTimer& timer);
  // Throws when the operation can no longer complete.
  void check_peers(const PendingOperation& pending);
  // Throws when the process of a rank that blocks the operation has ended.
  void check_peer_processes(const PendingOperation& pending);
  [[noreturn]] void give_up(const PendingOperation& pending);
  void mark_dead_from(const PendingOperation& pending);
  [[noreturn]] void throw_timeout(const PendingOperation& pending, Duration timeout);
  bool all_started(uint64_t number) const;
  // Whether a rank will never complete this operation; `stopped_rank` receives that rank.
  bool has_stopped(uint64_t number, int* stopped_rank = nullptr) const;
  bool failed() const;

  // Whether other ranks may be blocked until this rank writes or reads a round.
  bool needs_helper() const;
  void wake_helper();
  void run_helper();

  const std::shared_ptr<SegmentView> view_;
  const std::string name_;
  const Ancestry ancestry_;
  const int rank_, size_;
  bool spins_ = false;

  std::mutex mutex_;
  std::atomic<int> foreground_waiters_{0};  // threads other than the helper that want the mutex

  uint64_t next_ = 1;                              // number of the next operation; 0 is the split that made the group
  uint64_t writing_ = 1, reading_ = 1;             // the first operation that is not completely written, or read
  uint64_t dead_from_ = ~uint64_t{0};              // this operation and all later ones were given up
  uint64_t rounds_written_ = 0, rounds_read_ = 0;  // over all operations
  uint64_t rounds_read_by_all_ = 0;                // a lower bound
  int ready_ranks_ = 0;                            // ranks 0 .. ready_ranks_ - 1 have written the round to read next
  Blockers blockers_;
  bool disagreed_ = false;
  std::vector<PendingOperation*> ring_;  // operation n is at n modulo the size, a power of two
  std::vector<PendingOperation*> free_;
  std::vector<std::unique_ptr<PendingOperation>> all_;
  std::vector<const std::byte*> slots_;  // scratch: for each round of a batch, the slot of each rank
  std::vector<const void*> inputs_;      // scratch for Transfer::read(), for each thread

  std::condition_variable helper_woken_;
  bool stop_ = false;
  std::thread helper_;
};

}  // namespace lockstep::detail
