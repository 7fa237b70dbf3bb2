// Which axes cut which factor of an equation.
#pragma once

#include <map>

#include "passes/partition.h"

namespace lockstep {

using FactorAxes = std::map<char, std::vector<std::string>>;

// Decides from how the operands lie and, where they leave it open, from how the results should. An axis cuts one
// factor: of several that ask for it, first one that results keep, so that nothing is owed, and of these that of the
// first operand. Where results have dimensions that no operand has, the results are asked first: what is repeated is
// smaller than what is made of it, and is the one to move. A factor that has steps is cut by the first of its axes
// whose pieces begin and end between steps. REQUIRES: the op has a rule.
FactorAxes factor_axes(const Program&, const LaneGrid&, const Eqn&, const Rule&, const std::vector<LaneCuts>& cuts);

// Has a result a dimension that may be cut and that no operand has?
bool makes_dimensions(const Rule&);

// The rule of an equation; the types are those of the whole.
Rule rule_of(const Program&, const Eqn&);

// The cuts of a value whose dimensions are these factors.
LaneCuts cuts_of(const std::string& factors, const FactorAxes& axes);

}  // namespace lockstep
