// Collectives between lanes. All lanes of a group (those that differ only along `axes` of the grid) execute the same
// collectives in the same order. The partitioner inserts them, and no pass drops, merges or reorders them. Data is
// divided along dimension 0.
//
// Where other work can overlap, schedule() splits an all-reduce, all-gather or reduce-scatter into a pair:
//   - lane_all_reduce_start begins the collective
//   - lane_all_reduce_done takes the results of the start and returns when the collective has completed
// Until then no equation may read or write these values. The done equation of a gather or scatter also takes the
// operand of the start, before its results, so that the operand's memory stays valid until other lanes have read it.
// The attribute `id` identifies a pair within its program.
//
// A Builder belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace lockstep {

// Whether an equation is all of such a collective, not only its start or its completion.
bool is_all_reduce(const Eqn&);
bool is_all_gather(const Eqn&);
bool is_reduce_scatter(const Eqn&);

// The lanes that take part: the axes of the group, and this lane's index in it.
struct LaneGroup {
  std::vector<std::string> axes;
  int64_t index = 0;
};

// Combines each value with the corresponding values of all lanes of the group: sum, max or min. Several values are
// combined in one collective.
Values lane_all_reduce(const Values& x, const LaneGroup& group, PendingReduction kind);

// Concatenates the blocks of all lanes, counts[i] rows from lane i. counts[group.index] is the extent of x.
Value lane_all_gather(Value x, const LaneGroup& group, std::vector<int64_t> counts);

// The counts[group.index] rows of the combined value that belong to this lane; the counts add up to the extent of x.
Value lane_reduce_scatter(Value x, const LaneGroup& group, std::vector<int64_t> counts, PendingReduction kind);

// x [sum of send] is divided into blocks for the lanes; the result [sum of receive] is the blocks received from them.
Value lane_all_to_all(Value x, const LaneGroup& group, std::vector<int64_t> send, std::vector<int64_t> receive);

}  // namespace lockstep
