// The loops of attention for the baseline instruction set of the architecture.
#include "ops/loops/attention_impl.h"

namespace lockstep {

extern const AttentionLoops kAttentionLoopsBaseline;
constinit const AttentionLoops kAttentionLoopsBaseline = make_attention_loops();

}  // namespace lockstep
