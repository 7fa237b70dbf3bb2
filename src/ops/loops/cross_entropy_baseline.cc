// The loops of cross_entropy for the baseline instruction set of the architecture.
#include "ops/loops/cross_entropy_loops_impl.h"

namespace lockstep {

extern const CrossEntropyLoops kCrossEntropyBaseline;
constinit const CrossEntropyLoops kCrossEntropyBaseline = make_cross_entropy_loops();

}  // namespace lockstep
