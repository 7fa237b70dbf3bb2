// Which way a convolution is computed on the GPU: by a kernel of our own, or by cuDNN where it is there and can. Both
// are measured, in turns, when a convolution is first prepared on a machine: cuDNN's is taken where it is faster nearly
// each time. That is remembered in the process and, beside compiled kernels, on disk, so that runs to come compute the
// same bits. Safe from any thread.
#pragma once

#include "lane/cpu/conv.h"
#include "ops/cuda/kernels.h"

namespace lockstep {

// The convolution of a kernel's first two operands, in the order of the pass; where there is a `body`, an elementwise
// program of its result and the operands that follow.
// REQUIRES: nothing of it is empty.
Kernel prepare_conv(ConvPass, const ConvSpec&, const KernelSpec&, const Program* body = nullptr);

// The way taken from now on, where it can be; for tests.
enum class ConvWay : uint8_t { fastest, own, dnn };
void set_conv_way(ConvWay);

}  // namespace lockstep
