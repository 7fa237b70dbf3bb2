// Reduces the values of several ranks element by element, for every element type. Pure; safe from any thread.
#pragma once

#include <cstdint>
#include <span>

#include "comm/operation.h"

namespace lockstep {

// out[k][out_begin + i] = in[0][in_begin + i] (+) in[1][in_begin + i] (+) ..., for every k and i < count, reduced in
// this order. 16-bit floats are reduced in f32 and rounded once. Integer sums wrap. The max and min of values with a
// NaN are NaN. An `in` and an `out` may be the same memory for the same i. REQUIRES: `in` is not empty; no sum of
// booleans.
void reduce(DType dtype, Reduction reduction, std::span<const void* const> in, int64_t in_begin,
            std::span<void* const> out, int64_t out_begin, int64_t count);

}  // namespace lockstep
