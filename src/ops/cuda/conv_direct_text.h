// Convolutions on the GPU with groups of a few channels, such as depthwise ones: without products of matrices, whose
// tiles would be mostly empty. Pure functions, safe from any thread.
#pragma once

#include <optional>
#include <string>

#include "ops/cuda/conv_text.h"
#include "ops/cuda/step.h"

namespace lockstep {

// Whether the kernel supports a convolution and is faster than products.
bool has_direct_conv(const ConvSpec&);

// The layout of the kernel: results, splits (only of the filter's gradient), blocks and threads.
ConvLayout conv_direct_layout(ConvPass, const ConvSpec&);

// The text of a kernel f(A's array, B's array, C's array), as conv_text(). REQUIRES: has_direct_conv(spec), and no
// operand and no result is empty.
std::string conv_direct_text(ConvPass, const ConvSpec&);

// The forward convolution followed by `body` of each result, as one kernel. Returns nullopt if the program needs other
// elements of the result than its own.
std::optional<CudaStep> conv_direct_step(const ConvSpec&, const Program& body);

}  // namespace lockstep
