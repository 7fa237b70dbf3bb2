// The CPU kernels of normalization. A prepared kernel may run on one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

Kernel layer_norm_cpu(const KernelSpec&);
Kernel layer_norm_grad_cpu(const KernelSpec&);
Kernel rms_norm_cpu(const KernelSpec&);
Kernel rms_norm_grad_cpu(const KernelSpec&);

}  // namespace lockstep
