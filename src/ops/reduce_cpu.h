// Reductions on the CPU. A prepared kernel may run on one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

enum class ReduceKind : uint8_t { sum, prod, max, min, all, any };

// The kernel that combines the elements of the only operand along the attribute `axes`. The order in which elements are
// combined depends on the shape only, never on the number of threads.
Kernel reduce_kernel(ReduceKind, const KernelSpec&);

}  // namespace lockstep
