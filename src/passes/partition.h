// Turns one global program into programs of lanes. place() chooses which lane axes shard which dimension of every
// value. partition() then writes the program of one lane, with local shapes and with collectives exactly where the ops'
// rules require them. The programs of all lanes have the same collectives in the same order; shapes differ if shards
// are uneven. Pure functions, safe from any thread.
//
// A value is sharded along a dimension if lanes hold different ranges of it. A value is partial over an axis if the
// lanes along it hold terms of a sum: a reduction is pending.
//
// Worked example. In y = einsum "bi,io->bo" x w, x [128, 784] is sharded along b by "data" on 2 lanes and w is
// replicated. So b is sharded, each lane computes [64, 1024] of y, and no reduction is pending. The weight gradient
// "bi,bo->io" reduces b, which is sharded: it is partial over "data". It is reduced by a lane_all_reduce before the
// first use that is not linear, or by a lane_reduce_scatter if the gradient itself is to be sharded by "data".
#pragma once

#include <optional>

#include "program/op.h"
#include "sharding/lanes.h"

namespace lockstep {

// The lane spec of every value, and the reason for it: an annotation, or the equation that implies it.
struct Placement {
  std::vector<LaneSpec> lane_specs;  // by ValueId
  std::vector<std::string> reasons;  // by ValueId; empty: nothing implies one, so the value is replicated
};

// The required lane specs of values; nullopt: chosen by place().
using LaneConstraints = std::vector<std::optional<LaneSpec>>;

// Propagates lane specs along the factors of the ops' rules, forwards and backwards, to a fixed point. Constraints are
// kept: those of inputs and outputs given here, and those of other values given by annotations in the program.
// REQUIRES: all annotations are of the grid's mesh.
Placement place(const Program&, const LaneGrid&, const LaneConstraints& inputs, const LaneConstraints& outputs);

// The program of one lane. Its inputs and outputs are that lane's pieces.
Program partition(const Program&, const LaneGrid&, const Placement&, int64_t lane);

}  // namespace lockstep
