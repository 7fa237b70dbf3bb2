// The loops of attention for AVX-512 F, BW, DQ and VL.
#include "ops/loops/attention_impl.h"

namespace lockstep {

extern const AttentionLoops kAttentionLoopsAvx512;
constinit const AttentionLoops kAttentionLoopsAvx512 = make_attention_loops();

}  // namespace lockstep
