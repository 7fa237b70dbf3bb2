// Kernels of elementwise programs: the row `fused`, and every elementwise row by itself. The factories are called at
// plan time from one thread; a prepared kernel may be called from one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

// The kernel of a program that Cluster can compile, run over the pool in pieces worth a thread's while.
Kernel fused_kernel(const Program& body, const KernelSpec& spec);

// The kernel of one elementwise op.
Kernel elementwise_kernel(const Op& op, const KernelSpec& spec);

}  // namespace lockstep
