// The CPU kernels of convolution. A prepared kernel may run on one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

Kernel conv2d_cpu(const KernelSpec&);
Kernel conv2d_fused_cpu(const KernelSpec&);
Kernel conv2d_input_grad_cpu(const KernelSpec&);
Kernel conv2d_filter_grad_cpu(const KernelSpec&);

}  // namespace lockstep
