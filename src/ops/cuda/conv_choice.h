// Which way a convolution is computed on the GPU: by a kernel of our own, or by cuDNN where it is there and can. Both
// are measured when a convolution is first prepared on a machine; what was faster is remembered in the process and,
// beside compiled kernels, on disk, so that runs to come compute the same bits. Safe from any thread.
#pragma once

#include <functional>
#include <memory>

#include "lane/cpu/conv.h"
#include "ops/cuda/kernels.h"

namespace lockstep {

// out = the convolution of a and b, the operands in the order of the pass.
using ConvWork = std::function<void(const void* a, const void* b, void* out)>;

// REQUIRES: nothing of it is empty.
ConvWork prepare_conv(ConvPass, const ConvSpec&, const KernelSpec&);

// The way taken from now on, where it can be; for tests.
enum class ConvWay : uint8_t { fastest, own, dnn };
void set_conv_way(ConvWay);

}  // namespace lockstep
