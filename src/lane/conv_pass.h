// The three directions of a convolution. A plain value.
#pragma once

#include <cstdint>

namespace lockstep {

// y of x and w; the gradient of x of dy and w; the gradient of w of x and dy.
enum class ConvPass : uint8_t { forward, input_grad, filter_grad };

}  // namespace lockstep
