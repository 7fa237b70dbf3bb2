// A contraction on the GPU as a part of other kernels.
#pragma once

#include <functional>

#include "program/op.h"

namespace lockstep {

// Enqueues the contraction of the first two operands into memory of the type `result`. The attribute "spec" is that of
// the row einsum. REQUIRES: CudaGemm::supports() the operands' type.
std::function<void(const void* const* in, void* out)> product_cuda(const KernelSpec& spec, const Type& result);

}  // namespace lockstep
