// Matrices in 8-bit floats and their products, the parts of nn::float8_dot(). Safe to call from any thread.
//
//   Quantized a = quantize(x, power_of_two_above(max(abs(x)) / 448));   // x [m, k]
//   Array y = scaled_product(a.values, b.values, a.scale, b.scale, bf16);   // [m, k] and [n, k] -> [m, n]
#pragma once

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

// A matrix in 8-bit floats: x is about values * scale.
struct Quantized {
  Array values;      // [m, k]
  Array transposed;  // [k, m]
  Array scale;       // f32 scalar
  Array largest;     // the largest absolute value of x, f32 scalar; NaN if x has a NaN
};

// x [m, k] of bf16, f16 or f32, times 1 / scale and rounded to `dtype`. The scale is a number above 0. One reading of x
// gives all results.
Quantized quantize(const Operand& x, const Operand& scale, DType dtype = f8_e4m3);

// a [m, k] times the transpose of b [n, k], both of 8-bit floats, times both scales: [m, n]. Sums are f32 and rounded
// once, to `dtype`: bf16, f16 or f32.
Array scaled_product(const Operand& a, const Operand& b, const Operand& scale_a, const Operand& scale_b,
                     DType dtype = f32);

// The smallest powers of two that are at least x, in f32, between 2^-100 and 2^100. 1 where x is 0 or not finite.
Array power_of_two_above(const Operand& x);

}  // namespace lockstep
