// The kernels of attention for arrays that are parts of larger ones. Used by the thread of a lane.
#pragma once

#include <cstdint>

#include "program/op.h"

namespace lockstep {

// Elements from one token to the next in q, k, v and their gradients; 0: dense. Heads are always adjacent, and examples
// follow each other at that distance for each token.
struct AttentionLeads {
  int64_t q = 0, k = 0, v = 0, dq = 0, dk = 0, dv = 0;
};

// Of the rows attention and attention_grad. An empty Kernel: not supported.
Kernel attention_cuda(const KernelSpec& spec, const AttentionLeads& leads);
Kernel attention_grad_cuda(const KernelSpec& spec, const AttentionLeads& leads);

}  // namespace lockstep
