// The flight recorder: what it records, and that it can be read while it records.
#include "comm/recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/shared_memory_ranks.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

using Outcome = FlightRecord::Outcome;
using Kind = Operation::Kind;

TEST(FlightRecorder, KeepsTheLastThousandOperations) {
  FlightRecorder recorder(6, 1);
  recorder.set_step(7);
  FlightLane& lane = *recorder.lanes()[0];
  EXPECT_EQ(lane.lane(), 6);
  FlightGroup& group = lane.add_group("world", {0, 6});
  EXPECT_TRUE(lane.records().empty());
  for (int64_t i = 0; i < 2500; ++i)
    lane.end(lane.begin(group, {.kind = Kind::all_reduce, .dtype = f64, .count = i + 1}, true), true);
  const std::vector<FlightRecord> records = lane.records();
  ASSERT_EQ(records.size(), 1000u);
  for (size_t i = 0; i < records.size(); ++i) {
    const FlightRecord& record = records[i];
    EXPECT_EQ(record.sequence, 1501 + static_cast<int64_t>(i));
    EXPECT_EQ(record.elements, record.sequence);
    EXPECT_EQ(record.bytes, 8 * record.sequence);
    EXPECT_EQ(record.kind, Kind::all_reduce);
    EXPECT_EQ(record.step, 7);
    EXPECT_EQ(record.outcome, Outcome::done);
    EXPECT_EQ(record.waited, record.began);
    EXPECT_GE(record.ended, record.began);
    if (i > 0) {
      EXPECT_GE(record.began, records[i - 1].ended);
    }
  }
  EXPECT_EQ(group.next(), 2501);
}

TEST(FlightRecorder, EndOfAnOverwrittenRecordIsIgnored) {
  FlightRecorder recorder(0, 1);
  FlightLane& lane = *recorder.lanes()[0];
  FlightGroup& group = lane.add_group("world", {0});
  const uint64_t old = lane.begin(group, {}, false);
  for (int64_t i = 0; i < FlightLane::kEntries; ++i) lane.begin(group, {}, false);
  lane.wait(old);
  lane.end(old, true);
  for (const FlightRecord& record : lane.records()) {
    EXPECT_EQ(record.outcome, Outcome::in_flight);
    EXPECT_EQ(record.waited, 0);
  }
}

TEST(FlightRecorder, CanBeReadWhileItRecords) {
  FlightRecorder recorder(0, 1);
  FlightLane& lane = *recorder.lanes()[0];
  FlightGroup& group = lane.add_group("world", {0});
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 1; !stop; ++i)
      lane.end(lane.begin(group, {.kind = i % 2 ? Kind::broadcast : Kind::all_reduce, .count = i}, true), true);
  });
  while (group.next() < 5000) std::this_thread::yield();
  for (int round = 0; round < 300; ++round)
    for (const FlightRecord& record : lane.records()) {
      // Every record is consistent: all fields belong to one operation.
      ASSERT_EQ(record.elements, record.sequence);
      ASSERT_EQ(record.kind, record.sequence % 2 ? Kind::broadcast : Kind::all_reduce);
      ASSERT_EQ(record.ended != 0, record.outcome == Outcome::done);
    }
  stop = true;
  writer.join();
}

TEST(FlightRecorder, RecordsOperationsOfAGroupAndItsSubgroups) {
  FlightRecorder recorder(0, 2);
  conformance::on_shared_threads(2, [&](Comm& comm) {
    FlightLane& lane = *recorder.lanes()[static_cast<size_t>(comm.rank())];
    comm.record_to(lane);
    float value = 1;
    comm.all_reduce(&value, &value, 1, f32, Reduction::sum);
    Work work = comm.start_broadcast(&value, 1, f32, 0);
    EXPECT_EQ(lane.records().back().waited, 0);
    work.wait();
    const std::unique_ptr<Comm> reversed = comm.split({1, 0}, "reversed");
    std::vector<int64_t> counts = {2, 3};
    std::vector<int32_t> in(3), out(5);
    reversed->all_gather(in.data(), out.data(), counts, i32);
    reversed->barrier();
  });
  for (const auto& lane : recorder.lanes()) {
    const auto groups = lane->groups();
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(groups[0]->lanes(), (std::vector<int>{0, 1}));
    EXPECT_EQ(groups[1]->name(), "reversed");
    EXPECT_EQ(groups[1]->lanes(), (std::vector<int>{1, 0}));
    const std::vector<FlightRecord> records = lane->records();
    ASSERT_EQ(records.size(), 5u);
    const std::vector<Kind> kinds = {Kind::all_reduce, Kind::broadcast, Kind::split, Kind::all_gather, Kind::barrier};
    for (size_t i = 0; i < kinds.size(); ++i) {
      EXPECT_EQ(records[i].kind, kinds[i]) << i;
      EXPECT_EQ(records[i].outcome, Outcome::done) << i;
      EXPECT_NE(records[i].waited, 0) << i;
      EXPECT_EQ(records[i].group, i < 2 ? 0 : 1);
      EXPECT_EQ(records[i].sequence, static_cast<int64_t>(i < 2 ? i + 1 : i - 2));
    }
    EXPECT_EQ(records[3].elements, 5);
    EXPECT_EQ(records[3].bytes, 20);
  }
}

TEST(FlightRecorder, ThrowingOperationIsRecordedAsFailed) {
  FlightRecorder recorder(0, 2);
  conformance::on_shared_threads(2, [&](Comm& comm) {
    FlightLane& lane = *recorder.lanes()[static_cast<size_t>(comm.rank())];
    comm.record_to(lane);
    EXPECT_THROW(comm.all_reduce(nullptr, nullptr, -1, f32, Reduction::sum),
                 Error);  // invalid by itself: not an operation of the group
    comm.abort("enough");
    EXPECT_THROW(comm.barrier(), CommAborted);
  });
  for (const auto& lane : recorder.lanes()) {
    const std::vector<FlightRecord> records = lane->records();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].outcome, Outcome::failed);
    EXPECT_GE(records[0].ended, records[0].began);
  }
}

}  // namespace
}  // namespace lockstep
