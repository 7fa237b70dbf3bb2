// Activation functions besides relu, gelu, silu and softplus (math.h), by the names and formulas of jax.nn. Integers become
// f32. Safe to call from any thread.
#pragma once

#include "lockstep/array.h"
#include "lockstep/axes.h"
#include "lockstep/operand.h"

namespace lockstep {

Array relu6(const Operand& x);                            // min(max(x, 0), 6)
Array leaky_relu(const Operand& x, double slope = 0.01);  // x, below 0 slope * x
Array elu(const Operand& x, double alpha = 1);            // x, below 0 alpha * (e^x - 1)
Array celu(const Operand& x, double alpha = 1);           // x, below 0 alpha * (e^(x / alpha) - 1)
Array selu(const Operand& x);                             // elu with the constants that keep mean 0 and variance 1
Array hard_tanh(const Operand& x);                        // x between -1 and 1
Array hard_sigmoid(const Operand& x);                     // relu6(x + 3) / 6
Array hard_silu(const Operand& x);                        // x * hard_sigmoid(x)
Array soft_sign(const Operand& x);                        // x / (|x| + 1)
Array squareplus(const Operand& x, double b = 4);         // (x + sqrt(x^2 + b)) / 2
Array mish(const Operand& x);                             // x * tanh(softplus(x))
Array sparse_plus(const Operand& x);                      // 0 up to -1, then (x + 1)^2 / 4, from 1 on x
Array sparse_sigmoid(const Operand& x);                   // its derivative: (x + 1) / 2 between 0 and 1

// The first half along an axis times the sigmoid of the second half. Throws Error when the extent is odd.
Array glu(const Operand& x, int64_t axis = -1);
// (x - mean) / sqrt(variance + epsilon) along axes.
Array standardize(const Operand& x, const Axes& axes = -1, double epsilon = 1e-5);

}  // namespace lockstep
