// The loops for the baseline instruction set of the architecture.
#include "ops/loops/loops_impl.h"

namespace lockstep {

extern const Loops kLoopsBaseline;
constinit const Loops kLoopsBaseline = make_loops();

}  // namespace lockstep
