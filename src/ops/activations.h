// Activation functions on Values that are composed of elementwise functions; gelu and silu are elementwise rows. These are
// the only definitions: a pass that looks for an activation in a program compares with the program that they build. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// max(x, 0); propagates NaN.
Value relu(Value x);

}  // namespace lockstep
