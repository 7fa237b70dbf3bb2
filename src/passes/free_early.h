// Moves equations up to where their operands are available, if that frees memory. Otherwise a program that recomputes
// values to save memory keeps them for its end: the gradients of weights are fused with the updates, which an optimizer
// writes after all gradients. A pure function, safe from any thread.
#pragma once

#include "program/program.h"

namespace lockstep {

// The program in an order in which an equation comes right after its last operand, if its results are small, or no larger
// than the operands that it uses last. Results of the program take no additional memory: they may overwrite inputs.
// Such an equation stays after earlier equations that use these inputs.
Program free_early(const Program&);

}  // namespace lockstep
