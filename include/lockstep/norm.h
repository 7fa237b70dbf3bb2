// Normalization along the last dimension or in groups of channels, and rotary positions. Safe to call from any thread.
//
//   Array y = layer_norm(x, scale, bias);   // x [..., d], scale and bias [d]
//
// Statistics and arithmetic are f32 (f64 for f64), and each result is rounded once. Integers become f32.
#pragma once

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

// (x - mean) / sqrt(variance + epsilon) * scale + bias in the type of x. The variance is that of the centered values.
Array layer_norm(const Operand& x, const Operand& scale, const Operand& bias, double epsilon = 1e-5);

// x / sqrt(mean(x^2) + epsilon) * scale in the type of x.
Array rms_norm(const Operand& x, const Operand& scale, double epsilon = 1e-5);

// x is [n, ..., c]: of each of the n examples, each of `groups` groups of c / groups consecutive channels is normalized by
// its mean and variance over all places, as in (x - mean) / sqrt(variance + epsilon) * scale + bias, in the type of x.
// scale and bias are [c].
Array group_norm(const Operand& x, int64_t groups, const Operand& scale, const Operand& bias, double epsilon = 1e-5);

// x is [b, t, heads, e] with even e, positions are integers [t]. Rotates each pair of features (i, i + e/2) by the angle
// position * base^(-2i/e).
Array rotary_embedding(const Operand& x, const Operand& positions, double base = 10000);

}  // namespace lockstep
