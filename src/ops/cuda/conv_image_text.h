// Convolutions on the GPU, of images of which a block holds a part with its edges: every element of the image is
// brought to the block's memory once, whatever number of windows it is in. Texts of steps (step.h); plain values, safe
// from any thread.
#pragma once

#include <optional>
#include <string>

#include "lane/conv_pass.h"
#include "lane/cpu/conv.h"
#include "ops/cuda/gemm_text.h"

namespace lockstep {

// What kernels include as "conv_image.h".
extern const char* const kConvImageText;

// The image's pass forward, or that of its gradient. Its elements are those of y, or of the gradient of x.
// Nothing where this is not for it: strides, dilated images, groups, numbers of channels that do not suit the tensor
// cores, too large for a block that has so much memory of its own.
std::optional<GemmStep> conv_image_step(ConvPass pass, const ConvSpec& spec, int64_t shared_bytes);

// The gradient of the filter, in parts that are to be added up: [splits, elements of the filter] of f32.
struct ConvFilterStep {
  std::string prelude, call;  // "ConvFilter<...>::run": of (block, x, dy, parts, shared)
  int64_t blocks = 0, splits = 0, shared_bytes = 0;
};
std::optional<ConvFilterStep> conv_filter_step(const ConvSpec& spec, int processors, int64_t shared_bytes);

}  // namespace lockstep
