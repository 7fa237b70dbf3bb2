// The rows with which lanes meet. Each lane of a group (those that differ along `axes` of the grid only) runs the same
// rows in the same order; the partitioner writes them, and nothing drops, merges or moves them past one another. Blocks
// lie along dimension 0.
//
// schedule() writes all-reduces, gathers and scatters in two steps where there is work to do meanwhile: the lanes begin
// to meet in lane_all_reduce_start, and lane_all_reduce_done, given what that gave, returns when they have met. In
// between these values are nobody's to read. The second step of a gather or scatter is given the operand of the first
// too, before what that gave, so that the operand's memory stays until others have read it. The attribute `id` tells a
// pair from the others of its program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace lockstep {

// Which lanes meet: the axes of the group, and this lane's place in it.
struct LaneGroup {
  std::vector<std::string> axes;
  int64_t index = 0;
};

// Each value combined with its like on all lanes of the group: sum, max or min. Several at once go as one.
Values lane_all_reduce(const Values& x, const LaneGroup& group, PendingReduction kind);

// The blocks of all lanes, counts[i] rows of lane i, one after another. counts[group.index] is the extent of x.
Value lane_all_gather(Value x, const LaneGroup& group, std::vector<int64_t> counts);

// The counts[group.index] rows of the combination that belong to this lane; the counts add up to the extent of x.
Value lane_reduce_scatter(Value x, const LaneGroup& group, std::vector<int64_t> counts, PendingReduction kind);

// x [sum of send] is cut into pieces for the lanes; the result [sum of receive] is what they sent here.
Value lane_all_to_all(Value x, const LaneGroup& group, std::vector<int64_t> send, std::vector<int64_t> receive);

}  // namespace lockstep
