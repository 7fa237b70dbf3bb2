// The CPU kernels of attention. A prepared kernel may run on one thread at a time.
#pragma once

#include "program/op.h"

namespace lockstep {

Kernel attention_cpu(const KernelSpec&);
Kernel attention_grad_cpu(const KernelSpec&);

}  // namespace lockstep
