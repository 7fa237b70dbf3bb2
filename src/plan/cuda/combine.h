// The pass of GPU plans that replaces equations that one kernel computes together by the row `combined`
// (ops/cuda/combined.h). A pure function, safe from any thread.
#pragma once

#include "program/program.h"

namespace lockstep {

// The program itself if nothing can be combined. REQUIRES: it came from lower().
Program combine(const Program& program);

}  // namespace lockstep
