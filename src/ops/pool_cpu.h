// The CPU kernels of pooling.
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
