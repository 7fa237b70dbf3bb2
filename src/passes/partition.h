// One global program over many lanes. place() decides which lane axes cut which dimension of every value; partition()
// then writes the program of one lane: local shapes, and a collective exactly where the ops' rules owe one. Every
// lane's program has the same collectives in the same order; shapes may differ where cuts are uneven. Pure functions,
// safe from any thread.
//
// Worked example. y = einsum "bi,io->bo" of x [128, 784] cut along b by "data" on 2 lanes and of a whole w: b is cut,
// so each lane computes [64, 1024] of y and nothing is owed. Its weight gradient "bi,bo->io" reduces b, which is cut:
// the lanes hold terms of a sum, which is owed over "data" and paid by a lane_all_reduce before the first use that is
// not linear, or by a lane_reduce_scatter when the gradient is to be cut by "data" itself.
#pragma once

#include <optional>

#include "program/op.h"
#include "sharding/lanes.h"

namespace lockstep {

// How every value lies on the lanes, and why: an annotation, or the equation it follows from.
struct Placement {
  std::vector<LaneCuts> cuts;        // by ValueId
  std::vector<std::string> reasons;  // by ValueId; empty for what is whole because nothing cuts it
};

// What was said of a value; what nothing was said of follows from the others.
using Said = std::vector<std::optional<LaneCuts>>;

// Along the factors of the ops' rules, forwards and backwards, to a fixed point. What was said stays as it is: of
// inputs and outputs here, of other values by equations that annotate. Annotations must all be of the mesh of the grid.
Placement place(const Program&, const LaneGrid&, const Said& inputs, const Said& outputs);

// The program of one lane. Its inputs and outputs are that lane's pieces.
Program partition(const Program&, const LaneGrid&, const Placement&, int64_t lane);

}  // namespace lockstep
