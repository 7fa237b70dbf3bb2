// Kernels of elementwise programs: of the row `fused`, and of single elementwise rows. The factories are called at
// plan time from one thread; a prepared kernel may be called from one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

// The kernel of a program that TiledProgram can compile. It runs on the pool, in ranges large enough to be worth a thread.
Kernel fused_kernel(const Program& body, const KernelSpec& spec);

// The row that computes a group of elementwise equations: as the epilogue of `head`, or on its own if head is null.
const Op& row_of_group(const Op* head);

// The kernel of one elementwise op.
Kernel elementwise_kernel(const Op& op, const KernelSpec& spec);

// Columns of rows that compute a value from their first `own` operands and then run an elementwise program `body` on
// that value and the remaining operands (Op::with_epilogue). Tiles finish in any order, so a result may share memory
// only with an operand that the body reads at the same index.
std::vector<Type> with_body_type(const Type& computed, size_t own, Types in, const Attrs&);
bool with_body_alias(size_t own, Types in, Types out, const Attrs&, size_t operand, size_t result);

}  // namespace lockstep
