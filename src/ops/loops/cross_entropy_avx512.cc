// The loops of cross_entropy for AVX-512 F, BW, DQ and VL.
#include "ops/loops/cross_entropy_loops_impl.h"

namespace lockstep {

extern const CrossEntropyLoops kCrossEntropyAvx512;
constinit const CrossEntropyLoops kCrossEntropyAvx512 = make_cross_entropy_loops();

}  // namespace lockstep
