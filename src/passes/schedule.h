// Schedules the collectives of a lane's program so that lanes compute while they communicate:
//
// - All-reduces are combined into buckets. A bucket starts as soon as its operands are ready and is waited for just
//   before the first use of a result.
// - All-gathers start a little before they are needed; reduce-scatters are waited for a little after they start.
//
// Runs after partition() and before lower(). Pure functions, safe from any thread.
//
// All lanes must run their collectives in the same order. But with uneven pieces the programs of lanes differ in sizes,
// and decisions that depend on sizes could differ too. So the schedule is chosen once, from the program of lane 0
// (whose pieces are the largest), and applied to each lane by equation index, which is the same on all lanes:
//
//   const CollectiveSchedule schedule = schedule_collectives(partition(program, grid, placement, 0));
//   const Program mine = apply_schedule(partition(program, grid, placement, lane), schedule);
//
// Worked example. The backward pass of three layers leaves the gradients of layer 3, then 2, then 1 partial over
// "data", and the optimizer needs each reduced. All are computed before the first is used: one bucket, whose all-reduce
// starts when the gradients of layer 1 are computed. If they were larger than a bucket, those of layer 3 would be
// reduced while the gradients of layer 2 are computed.
//
// With sharded weights (ZeRO 3) the gather of layer 2's weights starts just before the product of layer 1, not at the
// start of the program. The scatter of layer 3's gradient is waited for after the next product, not when the optimizer
// needs it. So gathered arrays live for a short time. For the backward pass the weights are gathered again
// (regather.h), and large ones in chunks (chunked_gather.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "passes/chunked_gather.h"
#include "passes/early_updates.h"
#include "passes/regather.h"
#include "program/program.h"

namespace lockstep {

struct CollectiveScheduleOptions {
  // The maximum size of a bucket of all-reduces; a larger operand gets its own bucket.
  int64_t bucket_bytes = int64_t{4} << 20;
  // At most this many expensive equations (eqn_cost.h) run while a gather or scatter is in flight, because it holds its
  // memory for as long. 0: gathers and scatters block.
  size_t prefetch = 1;
  RegatherOptions regather = {};
  ChunkOptions chunks = {};
  EarlyUpdateOptions early_updates = {};
};

// All-reduces that are combined into one. All numbers are positions in CollectiveSchedule::order.
struct Bucket {
  std::vector<size_t> members;  // in the order in which their operands become ready
  size_t start = 0;             // starts before the equation at this position
  size_t done = 0;              // is complete before the equation at this position; equal to start: blocks
  bool operator==(const Bucket&) const = default;
};

// A gather or scatter that starts at its own position and is complete before the equation at position `done`.
struct AsyncCollective {
  size_t start = 0;
  size_t done = 0;
  bool operator==(const AsyncCollective&) const = default;
};

struct CollectiveSchedule {
  // Applied in this order; the indices of each refer to the program after the previous one was applied.
  std::vector<Regather> regathers;
  std::vector<ChunkedCollective> chunks;
  std::vector<size_t> order;           // the equation at each position
  std::vector<Bucket> buckets;         // by start
  std::vector<AsyncCollective> async;  // by start
  bool operator==(const CollectiveSchedule&) const = default;
};

// Combines all-reduces over the same axes and of the same kind, in the order in which their operands become ready, as
// long as all operands are ready before the first result is used. Moves a gather up to the expensive equation that is
// `prefetch` before its first use, and a scatter to where its operand is ready. Other equations move only if they would
// be in the way and are cheap: views of operands move along, small elementwise equations on results (a loss divided by
// its count) are delayed until they are needed, and elementwise equations that only produce operands (a gradient times
// a rate) come as early as possible.
CollectiveSchedule schedule_collectives(const Program& lane0, const CollectiveScheduleOptions& options = {});

// Applies a schedule to the program of any lane of the same grid. Does not change results.
Program apply_schedule(const Program& lane, const CollectiveSchedule& schedule);

}  // namespace lockstep
