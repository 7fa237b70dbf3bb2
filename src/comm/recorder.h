// FlightRecorder: the last operations of each lane of this process with lanes of others, and when they began and ended,
// to be written down when something goes wrong. Its memory is fixed, and recording neither locks nor allocates.
//
// Threads. A lane's operations are recorded by the thread that uses its Comms; records() and groups() may be called
// from any thread meanwhile: an entry that is being replaced just then is left out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/operation.h"

namespace lockstep {

class FlightLane;

// One lane's place in a group, and how far it has come there. Made by FlightLane.
class FlightGroup {
 public:
  FlightGroup(FlightLane& lane, int index, std::string name, std::vector<int> lanes, int64_t next)
      : lane_(lane), index_(index), name_(std::move(name)), lanes_(std::move(lanes)), next_(next) {}

  FlightLane& lane() const { return lane_; }
  int index() const { return index_; }
  const std::string& name() const { return name_; }
  // Of all processes, by rank.
  const std::vector<int>& lanes() const { return lanes_; }
  // The number of the operation that is begun next. As in the messages of Comms the first is 1; that of a group which
  // is split off has number 0, the split.
  int64_t next() const { return next_.load(std::memory_order_relaxed); }

 private:
  friend class FlightLane;
  FlightLane& lane_;
  const int index_;
  const std::string name_;
  const std::vector<int> lanes_;
  std::atomic<int64_t> next_;
};

struct FlightRecord {
  enum class Outcome : uint8_t { under_way, done, failed };

  int group = 0;         // index in FlightLane::groups()
  int64_t sequence = 0;  // the operation's number in the group
  Operation::Kind kind = Operation::Kind::barrier;
  DType dtype = DType::f32;
  int64_t elements = 0, bytes = 0;  // of this rank's larger side
  int64_t step = 0;
  // Nanoseconds of the steady clock: when it was begun, when this lane began to wait for it, and when that ended;
  // 0: not yet.
  int64_t began = 0, waited = 0, ended = 0;
  Outcome outcome = Outcome::under_way;
};

class FlightLane {
 public:
  static constexpr int64_t kEntries = 1000;

  // `lane` is numbered among those of all processes; `step` is read with every record.
  FlightLane(int lane, const std::atomic<int64_t>& step) : lane_(lane), step_(step) {}
  FlightLane(const FlightLane&) = delete;
  FlightLane& operator=(const FlightLane&) = delete;

  int lane() const { return lane_; }

  // A group that this lane is in. Lasts as long as the FlightLane.
  FlightGroup& add_group(const std::string& name, const std::vector<int>& lanes, int64_t next = 1);

  // Each returns at once. begin() gives what the others need; `waits`: and the lane begins to wait for it.
  uint64_t begin(FlightGroup& group, const Operation& operation, bool waits) noexcept;
  void wait(uint64_t ticket) noexcept;
  void end(uint64_t ticket, bool done) noexcept;

  // The last kEntries, oldest first.
  std::vector<FlightRecord> records() const;
  std::vector<const FlightGroup*> groups() const;

 private:
  // Readers compare `ticket` before and after: it is that of the record, plus one, and zero while it is being written.
  struct Entry {
    std::atomic<uint64_t> ticket{0};
    std::atomic<int64_t> sequence{0}, elements{0}, bytes{0}, step{0}, began{0}, waited{0}, ended{0};
    std::atomic<int32_t> group{0};
    std::atomic<Operation::Kind> kind{};
    std::atomic<DType> dtype{};
    std::atomic<FlightRecord::Outcome> outcome{};
  };
  // Null when it has been replaced.
  Entry* find(uint64_t ticket) noexcept;

  const int lane_;
  const std::atomic<int64_t>& step_;
  std::atomic<uint64_t> next_{0};
  std::array<Entry, kEntries> entries_;
  mutable std::mutex mutex_;  // of the list of groups
  std::vector<std::unique_ptr<FlightGroup>> groups_;
};

class FlightRecorder {
 public:
  // `first`: the first of this process's lanes among those of all processes.
  FlightRecorder(int first, int lanes);

  const std::vector<std::unique_ptr<FlightLane>>& lanes() const { return lanes_; }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> step_{0};
  std::vector<std::unique_ptr<FlightLane>> lanes_;
};

}  // namespace lockstep
