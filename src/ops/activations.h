// Activations on Values, made of elementwise functions: what an activation is, is said here alone, and who looks for
// one in a program compares with it. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// max(x, 0); NaN is handed on.
Value relu(Value x);
// x Phi(x): by the tanh formula, and by erf.
Value gelu(Value x);
Value gelu_exact(Value x);
// x sigmoid(x).
Value silu(Value x);

}  // namespace lockstep
