// The loops for the instruction set every machine of this architecture has.
#include "ops/loops/loops_impl.h"

namespace lockstep {

extern const Loops kLoopsBaseline;
constinit const Loops kLoopsBaseline = make_loops();

}  // namespace lockstep
