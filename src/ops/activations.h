// Activation functions on Values, composed of elementwise functions. These are the only definitions: a pass that looks
// for an activation in a program compares with the program that these functions build. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// max(x, 0); propagates NaN.
Value relu(Value x);
// x Phi(x): gelu by the tanh approximation, gelu_exact by erf.
Value gelu(Value x);
Value gelu_exact(Value x);
// x sigmoid(x).
Value silu(Value x);

}  // namespace lockstep
