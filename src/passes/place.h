// Chooses the lane axes that shard each factor of an equation. Pure functions, safe from any thread.
#pragma once

#include <map>

#include "passes/partition.h"

namespace lockstep {

using FactorAxes = std::map<char, std::vector<std::string>>;

// Chooses from the lane specs of the operands and, where they leave it open, from those of the results. An axis shards
// at most one factor. If several factors claim it, factors that the results keep come first, so that no reduction is
// pending; among these the first operand's. If results have dimensions that no operand has (a broadcast), the results
// come first: the operand is smaller than the result and cheaper to move. A factor with steps is sharded by the longest
// prefix of its axes whose boundaries fall between steps. REQUIRES: the op has a rule.
FactorAxes factor_axes(const Program&, const LaneGrid&, const Eqn&, const Rule&,
                       const std::vector<LaneSpec>& lane_specs);

// Whether a result has a dimension that may be sharded and that no operand has.
bool makes_dimensions(const Rule&);

// The rule of an equation, for the types of the global program.
Rule rule_of(const Program&, const Eqn&);

// The lane spec of a value whose dimensions are these factors.
LaneSpec lane_spec_of(const std::string& factors, const FactorAxes& axes);

}  // namespace lockstep
