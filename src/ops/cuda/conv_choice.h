// Selects the GPU implementation of a convolution: a kernel of this library, or cuDNN if it is installed and supports
// the case. When a convolution is first prepared on a machine, both are timed in alternation; cuDNN is selected if it
// is faster nearly every time. The choice is remembered in the process and, with the compiled kernels, on disk, so
// that later runs compute the same bits. Safe from any thread.
#pragma once

#include "lane/cpu/conv.h"
#include "ops/cuda/kernels.h"

namespace lockstep {

// Convolves a kernel's first two operands, in the order of the pass. `body`, if not null, is an elementwise program of
// the result and the remaining operands. REQUIRES: no operand and no result is empty.
Kernel prepare_conv(ConvPass, const ConvSpec&, const KernelSpec&, const Program* body = nullptr);

// Selects the implementation for convolutions prepared from now on, where it supports them; for tests.
enum class ConvBackend : uint8_t { fastest, own, cudnn };
void set_conv_backend(ConvBackend);

}  // namespace lockstep
