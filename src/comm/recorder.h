// FlightRecorder: the last operations of each lane of this process with lanes of other processes, and when they began
// and ended. They are written to a file when something goes wrong (`lockstep blame` reads it). Its memory is fixed, and
// recording neither locks nor allocates.
//
// Thread safety: the operations of a lane are recorded by the thread that uses its Comms. records() and groups() may be
// called from any thread at the same time; records() omits an entry that is being overwritten.
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

// A group that a lane is in, and the number of its next operation there. Created by FlightLane.
class FlightGroup {
 public:
  FlightGroup(FlightLane& lane, int index, std::string name, std::vector<int> lanes, int64_t next)
      : lane_(lane), index_(index), name_(std::move(name)), lanes_(std::move(lanes)), next_(next) {}

  FlightLane& lane() const { return lane_; }
  int index() const { return index_; }
  const std::string& name() const { return name_; }
  // By rank: the number of the lane in the job.
  const std::vector<int>& lanes() const { return lanes_; }
  // The number of the next operation, as in the messages of Comms: the first is 1. In a group that was split off, the
  // split has number 0.
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
  enum class Outcome : uint8_t { in_flight, done, failed };

  int group = 0;         // index in FlightLane::groups()
  int64_t sequence = 0;  // the number of the operation in its group
  Operation::Kind kind = Operation::Kind::barrier;
  DType dtype = DType::f32;
  int64_t elements = 0, bytes = 0;  // of the larger of input and output of this rank
  int64_t step = 0;
  // Steady-clock nanoseconds: when the operation began, when this lane began to wait for it, and when it ended; 0: not
  // yet.
  int64_t began = 0, waited = 0, ended = 0;
  Outcome outcome = Outcome::in_flight;
};

class FlightLane {
 public:
  static constexpr int64_t kEntries = 1000;

  // `lane` is the number of the lane in the job. `step` is read for every record.
  FlightLane(int lane, const std::atomic<int64_t>& step) : lane_(lane), step_(step) {}
  FlightLane(const FlightLane&) = delete;
  FlightLane& operator=(const FlightLane&) = delete;

  int lane() const { return lane_; }

  // Adds a group that this lane is in. Valid as long as the FlightLane.
  FlightGroup& add_group(const std::string& name, const std::vector<int>& lanes, int64_t next = 1);

  // Record the start of an operation, the start of the wait for it, and its end. begin() returns the ticket for the
  // others; `waits`: the wait begins at the same time.
  uint64_t begin(FlightGroup& group, const Operation& operation, bool waits) noexcept;
  void wait(uint64_t ticket) noexcept;
  void end(uint64_t ticket, bool done) noexcept;

  // The last kEntries records, oldest first.
  std::vector<FlightRecord> records() const;
  std::vector<const FlightGroup*> groups() const;

 private:
  // `ticket` is 1 + the ticket of the record, and 0 while the entry is being written. A reader checks it before and
  // after it reads the entry.
  struct Entry {
    std::atomic<uint64_t> ticket{0};
    std::atomic<int64_t> sequence{0}, elements{0}, bytes{0}, step{0}, began{0}, waited{0}, ended{0};
    std::atomic<int32_t> group{0};
    std::atomic<Operation::Kind> kind{};
    std::atomic<DType> dtype{};
    std::atomic<FlightRecord::Outcome> outcome{};
  };
  // The entry of a ticket; null when it has been overwritten.
  Entry* find(uint64_t ticket) noexcept;

  const int lane_;
  const std::atomic<int64_t>& step_;
  std::atomic<uint64_t> next_{0};
  std::array<Entry, kEntries> entries_;
  mutable std::mutex mutex_;  // guards groups_
  std::vector<std::unique_ptr<FlightGroup>> groups_;
};

class FlightRecorder {
 public:
  // `first_lane` is the number in the job of the first lane of this process.
  FlightRecorder(int first_lane, int lanes);

  const std::vector<std::unique_ptr<FlightLane>>& lanes() const { return lanes_; }
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  void set_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> step_{0};
  std::vector<std::unique_ptr<FlightLane>> lanes_;
};

}  // namespace lockstep
