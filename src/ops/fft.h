// The row of Fourier transforms. A Builder belongs to one thread.
#pragma once

#include <string_view>

#include "program/builder.h"

namespace lockstep {

// Transforms the last `dims` dimensions, 1 to 3, without normalization: a forward and an inverse transform multiply by the
// number of points. `kind`:
//   "fft", "ifft"  complex to complex
//   "rfft"         real to complex: of the last dimension, n elements become n / 2 + 1
//   "irfft"        complex to real: the last dimension becomes `length`, which has length / 2 + 1 elements of a spectrum
// Throws Error if the operand does not fit.
Value fourier(Value x, std::string_view kind, int64_t dims, int64_t length = 0);

}  // namespace lockstep
