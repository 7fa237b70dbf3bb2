// The CPU kernels of pooling. A prepared kernel may run on one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

Kernel max_pool_cpu(const KernelSpec&);
Kernel max_pool_grad_cpu(const KernelSpec&);
Kernel max_pool_grad_fused_cpu(const KernelSpec&);
Kernel max_pool_pick_cpu(const KernelSpec&);
Kernel sum_pool_cpu(const KernelSpec&);
Kernel sum_pool_grad_cpu(const KernelSpec&);

}  // namespace lockstep
