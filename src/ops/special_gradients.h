// Derivatives of the inverse, hyperbolic and special functions, as used in elementwise.def. A Builder belongs to one
// thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// x^2 - 1, without the cancellation near 1.
Value square_minus_one(Value x);

// a / (a^2 + b^2).
Value over_square_sum(Value a, Value b);

// The derivatives of e^-|x| I0(x) and e^-|x| I1(x), which are y at x. The second one is 1/2 at 0.
Value bessel_i0e_slope(Value x, Value y);
Value bessel_i1e_slope(Value x, Value y);

// The derivative of zeta(s, q) with respect to q: -s zeta(s + 1, q).
Value zeta_slope(Value s, Value q);

// x^(a-1) e^-x / gamma(a), the derivative of the lower incomplete gamma function with respect to x.
Value gamma_density(Value a, Value x);

// Throws Error: the function has no gradient with respect to this operand.
[[noreturn]] Value no_gradient(const char* function, const char* operand);

}  // namespace lockstep
