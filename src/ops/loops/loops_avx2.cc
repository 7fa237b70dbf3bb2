// The loops for AVX2.
#include "ops/loops/loops_impl.h"

namespace lockstep {

extern const Loops kLoopsAvx2;
constinit const Loops kLoopsAvx2 = make_loops();

}  // namespace lockstep
