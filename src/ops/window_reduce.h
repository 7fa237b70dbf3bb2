// Reductions over windows of any number of dimensions, composed of the pooling rows: dimension by dimension, the last
// ones first, so that the first of equal maxima in row-major order is picked. A Builder belongs to one thread.
#pragma once

#include "ops/conv_general.h"

namespace lockstep {

enum class WindowKind : uint8_t { add, mul, max, min };

// The element that changes no result of `kind`, as a scalar.
Value window_identity(Builder&, DType, WindowKind);

// Reduces windows of x, whose dimensions have the geometry of `dims`. Padding has the value of `padding`, a scalar of
// x's dtype. An absent `padding` is the identity. Every window has a place in x, unless x is empty.
Value window_reduce(Value x, WindowKind, const std::vector<WindowDim>& dims, Value padding = {});

}  // namespace lockstep
