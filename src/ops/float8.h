// Matrices in 8-bit floats and their products. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// x [m, k] in 8-bit floats: x * (1 / scale), in f32, rounded to `dtype`. `scale` is an f32 scalar above 0. Returns the
// matrix [m, k], its transpose [k, m], and the largest absolute value of x, an f32 scalar that is NaN if x has a NaN.
// One reading of x gives all three.
Values quantize(Value x, Value scale, DType dtype);

// a [m, k] times the transpose of b [n, k], both of 8-bit floats, times scale_a * scale_b, f32 scalars. Sums are f32,
// rounded once to `dtype`: bf16, f16 or f32.
Value scaled_product(Value a, Value b, Value scale_a, Value scale_b, DType dtype);

}  // namespace lockstep
