// The loops of attention for AVX2.
#include "ops/loops/attention_impl.h"

namespace lockstep {

extern const AttentionLoops kAttentionLoopsAvx2;
constinit const AttentionLoops kAttentionLoopsAvx2 = make_attention_loops();

}  // namespace lockstep
