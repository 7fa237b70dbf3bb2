// The pass of GPU plans that moves small equations next to each other, so that they become few kernels. A pure function,
// safe from any thread.
#pragma once

#include "program/program.h"

namespace lockstep {

// Moves small elementwise equations to the front of the program if they need nothing but its inputs (biases in fewer
// bits), and to the end if nothing but its outputs needs them (updates of biases).
Program gather_small(const Program& program);

}  // namespace lockstep
