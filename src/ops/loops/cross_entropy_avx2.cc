// The loops of cross_entropy for AVX2.
#include "ops/loops/cross_entropy_loops_impl.h"

namespace lockstep {

extern const CrossEntropyLoops kCrossEntropyAvx2;
constinit const CrossEntropyLoops kCrossEntropyAvx2 = make_cross_entropy_loops();

}  // namespace lockstep
