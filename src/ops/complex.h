// Functions on complex Values. Strict, as in ops/elementwise.h, whose functions take complex operands where they have a
// meaning: arithmetic, eq, ne, exp, log, log1p, expm1, tanh, logistic, sqrt, rsqrt, sin, cos, pow, sign, abs (which is
// real), is_finite. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// re + i im of two f32 or f64 arrays, and the parts. REQUIRES (real, imag): x is complex.
Value complex(Value re, Value im);
Value real(Value x);
Value imag(Value x);

// |x|, the angle from -pi to pi, and the conjugate. REQUIRES: x is complex.
Value complex_abs(Value x);
Value complex_angle(Value x);
Value conj(Value x);

// Casts between real and complex types; to bool is "not zero", to other real types drops the imaginary part.
Value to_complex(Value x, DType dtype);
Value from_complex(Value x, DType dtype);

// f of the real parts + i f of the imaginary parts: a linear function with real coefficients. REQUIRES: x is complex.
template <class F>
Value by_parts(Value x, F&& f) {
  const Value re = f(real(x)), im = f(imag(x));
  return complex(re, im);
}

}  // namespace lockstep
