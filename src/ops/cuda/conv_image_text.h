// Convolutions on the GPU in which a thread block holds a part of an image, with its border, in shared memory. Each
// element of the image is loaded once, however many windows contain it. Texts of steps (step.h); pure functions, safe
// from any thread.
#pragma once

#include <optional>
#include <string>

#include "lane/conv_pass.h"
#include "lane/cpu/conv.h"
#include "ops/cuda/gemm_text.h"

namespace lockstep {

// The forward pass, or the gradient of the image. The elements of the product are those of y, or of the gradient of x.
// Returns nullopt if the case is not supported: strides, dilated images, groups, numbers of channels that do not suit
// the tensor cores, or more than `shared_bytes` of shared memory per thread block.
std::optional<GemmStep> conv_image_step(ConvPass pass, const ConvSpec& spec, int64_t shared_bytes);

// The gradient of the filter, as partial sums that remain to be added up: [splits, elements of the filter] in f32.
struct ConvFilterStep {
  std::string prelude, call;  // call: "ConvFilter<...>::run", with arguments (block, x, dy, parts, shared)
  int64_t blocks = 0, splits = 0, shared_bytes = 0;
};
// Returns nullopt as conv_image_step() does.
std::optional<ConvFilterStep> conv_filter_step(const ConvSpec& spec, int processors, int64_t shared_bytes);

}  // namespace lockstep
