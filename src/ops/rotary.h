// Rotary positions. A Builder belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "program/builder.h"

namespace lockstep {

// x is [b, t, h, e] with even e, positions are i32 [t]. Rotates each pair of features (i, i + e/2) of token t by the
// angle positions[t] * base^(-2i/e); by the opposite angle if `inverse`. Angles and arithmetic are f32 (f64 for f64),
// and the result is rounded once to the type of x.
Value rotary(Value x, Value positions, double base, bool inverse = false);

// The frequencies base^(-2i/e) for i < e/2, rounded to `dtype`, f32 or f64.
std::vector<double> rotary_frequencies(int64_t e, double base, DType dtype);

}  // namespace lockstep
