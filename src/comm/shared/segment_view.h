// SegmentView: one rank's mapping of the shared-memory segment of a group on one host, as typed regions.
//
//   SegmentHeader      the geometry, the identity of the group, and whether it failed
//   RankState  [size]  per rank: its progress, what it waits for, its process
//   failure texts      per rank: why this rank failed the group
//   split lists        per rank: the members of the group it is splitting off
//   slots              per rank: a ring of slots; a rank writes each round of an operation into one of its own slots
//
// Every word has one writer at a time, or changes by one atomic instruction. So a rank can be killed at any
// instruction without leaving a lock held. Other processes can write anything: offsets and lengths that are read from
// the segment are checked first.
//
// Thread safety: any thread may call any method, except as begin_wait() states.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/shared_descriptor.h"
#include "comm/shared/process.h"

namespace lockstep::detail {

struct SegmentGeometry {
  int size = 1;            // ranks
  int64_t slots = 0;       // per rank
  int64_t slot_bytes = 0;  // a multiple of the page size

  // A geometry with about `bytes_per_rank` bytes of slots per rank; 0 chooses a default size.
  static SegmentGeometry of(int size, int64_t bytes_per_rank);
  // Bytes at the start of a slot that are reserved for the request (see SharedGroup).
  int64_t request_bytes() const;
  // Bytes of data in a slot.
  int64_t room() const { return slot_bytes - request_bytes(); }
  int64_t total_bytes() const;
  // Whether this geometry describes a segment of `bytes` bytes. Safe for any field values.
  bool fits(int64_t bytes) const;
};

// Written by the rank that creates the segment. The plain fields are written before `ready` is set.
struct SegmentHeader {
  static constexpr uint32_t kReady = 0x4c53484d;
  static constexpr uint32_t kVersion = 3;

  std::atomic<uint32_t> ready;
  uint32_t version;
  SegmentGeometry geometry;
  ProcessId creator;
  char id[40];  // unique among all groups

  std::atomic<uint32_t> all_joined;  // 1 once all ranks have joined
  std::atomic<uint32_t> failure;     // 1 + the rank whose failure text is the first cause; 0: the group has not failed
  std::atomic<uint64_t> cpus[16];    // bitmask of the CPUs that any of the ranks may run on
};

struct alignas(128) RankState {
  static constexpr size_t kOfferWords = 8;

  // Progress.
  std::atomic<uint64_t> rounds_written;  // rounds that the rank has written to its slots
  std::atomic<uint64_t> rounds_read;     // rounds that the rank has read from the slots of all ranks
  std::atomic<uint64_t> started;         // number of the last operation that the rank has started
  std::atomic<uint64_t> stops_at;        // 1 + the first operation that the rank will never complete; 0: none

  // Sleeping and waking.
  alignas(64) std::atomic<uint64_t> waits_on;  // what the rank waits for: see wait_set(); 0: it does not wait
  std::atomic<uint32_t> wake_counter;          // the futex that the rank sleeps on

  // Identity.
  alignas(64) std::atomic<uint32_t> claimed, registered;
  ProcessId process;
  uint64_t parent_split_version;  // the split_version, in the parent group, of the split that made this group

  // The group that the rank is splitting off. split_version is odd while the other fields are being written.
  alignas(64) std::atomic<uint64_t> split_version;
  std::atomic<uint64_t> split_name;  // hash of the name of the new group
  std::atomic<int32_t> split_count;  // number of members; 0: no split in progress

  // Where the memory of the group is that the rank is splitting off as its rank 0: see offer_memory().
  alignas(64) std::atomic<uint64_t> offer_key;  // of the split; 0: no offer
  std::atomic<int32_t> offer_pid, offer_fd;
  std::atomic<uint64_t> offer_target[kOfferWords];  // its characters, padded with zeros
};

enum class FailureCause : uint32_t { aborted, mismatch };

struct GroupFailure {
  FailureCause cause = FailureCause::aborted;
  std::string message;
};

class SegmentView {
 public:
  // In waits_on: the rank waits for any other rank.
  static constexpr uint32_t kAnyRank = ~uint32_t{0};

  // Takes ownership of the mapping. Each rank maps the segment itself.
  SegmentView(void* memory, int64_t bytes, int rank);
  ~SegmentView();
  SegmentView(const SegmentView&) = delete;
  SegmentView& operator=(const SegmentView&) = delete;

  // Writes the header. REQUIRES: the memory is zeroed.
  void initialize(const SegmentGeometry& geometry, std::string_view id);
  // Reads the geometry from the header and locates the regions. Throws Error when the geometry does not describe a
  // segment of this size. REQUIRES: the header is ready. The methods below need this, except header() and id().
  void load_geometry();

  int rank() const { return rank_; }
  int size() const { return geometry_.size; }
  const SegmentGeometry& geometry() const { return geometry_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(memory_); }
  RankState& rank_state(int rank) const { return rank_states_[rank]; }
  RankState& own_state() const { return rank_states_[rank_]; }
  std::atomic<int32_t>* split_list(int rank) const { return split_lists_ + int64_t{rank} * geometry_.size; }
  std::byte* slot(int rank, uint64_t round) const {
    const auto slots = static_cast<uint64_t>(geometry_.slots);
    return slots_ + (static_cast<uint64_t>(rank) * slots + round % slots) * static_cast<uint64_t>(geometry_.slot_bytes);
  }
  std::string id() const;

  // Tells the other ranks where the memory of a new group is, of which this rank becomes rank 0. The key identifies the
  // new group, and is not 0. REQUIRES: one thread of a rank at a time.
  void offer_memory(uint64_t key, const DescriptorAddress& address) const;
  void withdraw_offer() const { own_state().offer_key.store(0); }
  // What `rank` offers for this key; nullopt: nothing.
  std::optional<DescriptorAddress> offered_memory(int rank, uint64_t key) const;

  // Fails the group and wakes all ranks. Only the first call of all ranks sets the cause; returns whether it was this.
  bool fail(FailureCause cause, std::string_view message);
  bool failed() const { return header().failure.load() != 0; }
  std::optional<GroupFailure> failure() const;

  // Wakes the ranks that wait for this one, or all ranks. Called after a change to the segment.
  void wake_waiting() const;
  void wake_all() const;

  // Sleeping without missing a wake-up: begin_wait() publishes what this rank waits for. The caller then checks its
  // condition once more, and calls sleep() with the result of begin_wait(). sleep() returns when the rank is woken or
  // after `time`. end_wait() withdraws the wait. REQUIRES: one thread of a rank at a time, except for sleep().
  uint32_t begin_wait(uint64_t waits_on) const;
  void sleep(uint32_t wake_count, std::chrono::nanoseconds time) const;
  void end_wait() const { own_state().waits_on.store(0, std::memory_order_relaxed); }
  // A waits_on value for one or two ranks, as 1 + rank in each half; -1 stands for no rank.
  static uint64_t wait_set(int first, int second = -1) {
    return static_cast<uint64_t>(first + 1) | static_cast<uint64_t>(second + 1) << 32;
  }

 private:
  struct FailureText {
    FailureCause cause;
    uint32_t length;
    char text[2040];
  };
  static_assert(sizeof(FailureText) == 2048);
  friend struct SegmentGeometry;

  void* const memory_;
  const int64_t bytes_;
  const int rank_;
  SegmentGeometry geometry_;
  RankState* rank_states_ = nullptr;
  FailureText* failure_texts_ = nullptr;
  std::atomic<int32_t>* split_lists_ = nullptr;
  std::byte* slots_ = nullptr;
  mutable std::atomic<bool> failing_{false};  // a thread of this process is writing its failure text
};

}  // namespace lockstep::detail
