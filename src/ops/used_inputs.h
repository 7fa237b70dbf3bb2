// Which inputs the outputs of a program depend on. Looks into nested programs: an operand that they ignore, or that only
// carries without a use depend on, does not count. Pure functions, safe from any thread.
#pragma once

#include <vector>

#include "program/program.h"

namespace lockstep {

// By input.
std::vector<bool> used_inputs(const Program&);

// The same for some of the outputs.
std::vector<bool> used_inputs(const Program&, const std::vector<bool>& outputs);

// Which operands of an equation some of its results depend on.
std::vector<bool> used_operands(const Eqn& eqn, const std::vector<bool>& results);

}  // namespace lockstep
