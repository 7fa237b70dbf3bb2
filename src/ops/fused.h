// Kernels of elementwise programs: the row `fused`, and every elementwise row by itself. The factories are called at
// plan time from one thread; a prepared kernel may be called from one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

// The kernel of a program that Cluster can compile, run over the pool in pieces worth a thread's while.
Kernel fused_kernel(const Program& body, const KernelSpec& spec);

// The kernel of one elementwise op.
Kernel elementwise_kernel(const Op& op, const KernelSpec& spec);

// Of rows that compute something by `own` operands, and then an elementwise program `body` of that and of the operands
// after them (Op::with_epilogue). The result's type comes first. Pieces are finished in any order, so a result may only
// take the place of an operand that the body reads at the same index.
std::vector<Type> with_body_type(const Type& computed, size_t own, Types in, const Attrs&);
bool with_body_alias(size_t own, Types in, Types out, const Attrs&, size_t operand, size_t result);

}  // namespace lockstep
