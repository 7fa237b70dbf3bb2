// The loops for AVX-512 F, BW, DQ and VL.
#include "ops/loops/loops_impl.h"

namespace lockstep {

extern const Loops kLoopsAvx512;
constinit const Loops kLoopsAvx512 = make_loops();

}  // namespace lockstep
