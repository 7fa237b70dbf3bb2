// ConvPass: a convolution or one of its two gradients. A plain value.
#pragma once

#include <cstdint>

namespace lockstep {

// forward computes y from (x, w); input_grad computes dx from (dy, w); filter_grad computes dw from (x, dy).
enum class ConvPass : uint8_t { forward, input_grad, filter_grad };

}  // namespace lockstep
