// Board: the memory that the ranks of a group on one host share, seen by one of them. Every word has one writer at a
// time or is changed by one atomic step, so a rank may be killed at any instruction and leaves nothing locked. Any
// thread may call any method.
//
//   Control   what the group is, and how it failed
//   Place     of each rank: how far it is, who it waits for, which process it is
//   texts     of each rank: why it made the group fail
//   lists     of each rank: the members of the group it is splitting off
//   slots     of each rank: what it gives to the others, a round in each
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/shared/process.h"

namespace lockstep::detail {

struct Geometry {
  int size = 1;
  int64_t slots = 0;       // per rank
  int64_t slot_bytes = 0;  // a multiple of the page size

  // Slots of `bytes_per_rank` in all, or of a moderate size when that is 0.
  static Geometry of(int size, int64_t bytes_per_rank);
  int64_t head_bytes() const;  // of a slot, before the data
  int64_t room() const { return slot_bytes - head_bytes(); }
  int64_t total_bytes() const;
  // Whether it describes a segment of this many bytes. Safe for any values.
  bool fits(int64_t bytes) const;
};

// Written by the rank that made the segment, before `ready`.
struct Control {
  static constexpr uint32_t kReady = 0x4c53484d;
  static constexpr uint32_t kVersion = 2;

  std::atomic<uint32_t> ready;
  uint32_t version;
  Geometry geometry;
  ProcessId creator;
  char id[40];  // unlike that of any other group

  std::atomic<uint32_t> open;      // all ranks have come, and the key is free again
  std::atomic<uint32_t> failure;   // 1 + the rank whose text is the first cause; 0: none
  std::atomic<uint64_t> cpus[16];  // those that some rank may run on
};

struct alignas(128) Place {
  // How far the rank is.
  std::atomic<uint64_t> arrived;   // rounds it has put into its slots
  std::atomic<uint64_t> finished;  // rounds it has taken from all slots
  std::atomic<uint64_t> started;   // operations
  std::atomic<uint64_t> ends_at;   // 1 + the first operation it will not do; 0: none

  // How it is woken.
  alignas(64) std::atomic<uint64_t> waits_on;  // two ranks + 1, or kAnybody, in 32 bits each
  std::atomic<uint32_t> bell;                  // what it sleeps on

  // Who it is.
  alignas(64) std::atomic<uint32_t> taken, registered;
  ProcessId process;
  uint64_t came_from;  // the version of its split in the group above

  // The group it is splitting off; odd while that is written.
  alignas(64) std::atomic<uint64_t> split_version;
  std::atomic<uint64_t> split_name;  // a hash
  std::atomic<int32_t> split_count;  // 0: none
};

enum class Cause : uint32_t { aborted, mismatch };

struct Failure {
  Cause cause = Cause::aborted;
  std::string message;
};

class Board {
 public:
  static constexpr uint32_t kAnybody = ~uint32_t{0};

  // Takes the mapping over. Other ranks find their own.
  Board(void* memory, int64_t bytes, int rank);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Of zeroed memory.
  void initialise(const Geometry& geometry, std::string_view id);

  int rank() const { return rank_; }
  int size() const { return geometry_.size; }
  const Geometry& geometry() const { return geometry_; }
  Control& control() const { return *reinterpret_cast<Control*>(memory_); }
  Place& place(int rank) const { return places_[rank]; }
  Place& mine() const { return places_[rank_]; }
  std::atomic<int32_t>* split_list(int rank) const { return lists_ + int64_t{rank} * geometry_.size; }
  std::byte* slot(int rank, uint64_t round) const {
    const auto slots = static_cast<uint64_t>(geometry_.slots);
    return slots_ + (static_cast<uint64_t>(rank) * slots + round % slots) * static_cast<uint64_t>(geometry_.slot_bytes);
  }
  // Reads the geometry once it is there. Throws Error when the memory cannot have it.
  void locate();

  // The first call of all ranks counts; returns whether this was it. Wakes everybody.
  bool fail(Cause cause, std::string_view message);
  bool failed() const { return control().failure.load() != 0; }
  std::optional<Failure> failure() const;
  // What distinguishes this group from any other.
  std::string id() const;

  // Tells those who wait for this rank, or everybody, that something has changed.
  void wake_waiting() const;
  void wake_all() const;
  // In three steps, so that nothing is missed: a rank says whom it waits for, looks once more, and sleeps until woken
  // by one of those or the time is over; then it withdraws. One thread of a rank at a time, but for sleep().
  uint32_t announce(uint64_t waits_on) const;
  void sleep(uint32_t ticket, std::chrono::nanoseconds time) const;
  void withdraw() const { mine().waits_on.store(0, std::memory_order_relaxed); }
  // Waits for one or two ranks.
  static uint64_t waiting_for(int first, int second = -1) {
    return static_cast<uint64_t>(first + 1) | static_cast<uint64_t>(second + 1) << 32;
  }

 private:
  struct Text {
    Cause cause;
    uint32_t length;
    char text[2040];
  };
  static_assert(sizeof(Text) == 2048);
  friend struct Geometry;

  void* const memory_;
  const int64_t bytes_;
  const int rank_;
  Geometry geometry_;
  Place* places_ = nullptr;
  Text* texts_ = nullptr;
  std::atomic<int32_t>* lists_ = nullptr;
  std::byte* slots_ = nullptr;
  mutable std::atomic<bool> failing_{false};
};

}  // namespace lockstep::detail
