// CPU kernels of cross_entropy. Safe from any thread; see KernelSpec.
#pragma once

#include "program/op.h"

namespace lockstep {

Kernel cross_entropy_cpu(const KernelSpec&);
Kernel cross_entropy_grad_cpu(const KernelSpec&);

}  // namespace lockstep
