// Functions of each element: operators, comparisons, choice, elementary functions. Operands of different shapes are
// broadcast as in NumPy (aligned at the last dimension; a dimension of 1 stretches), those of different element types
// meet as promote() says, and C++ numbers take the type of the array they meet. bool counts as i32 in arithmetic. Safe
// from any thread.
#pragma once

#include "lockstep/array.h"

namespace lockstep {

// Signed integers wrap. `/` is true division: integers become f32. `%` has the sign of the divisor, as in NumPy.
Array operator+(const Array& a, const Array& b);
Array operator-(const Array& a, const Array& b);
Array operator*(const Array& a, const Array& b);
Array operator/(const Array& a, const Array& b);
Array operator%(const Array& a, const Array& b);
Array operator-(const Array& x);

// The quotient rounded towards minus infinity; integers stay integers.
Array floor_divide(const Array& a, const Array& b);

// Bool arrays. They are no answer to `if` unless they have one element; use any() or all().
Array operator==(const Array& a, const Array& b);
Array operator!=(const Array& a, const Array& b);
Array operator<(const Array& a, const Array& b);
Array operator<=(const Array& a, const Array& b);
Array operator>(const Array& a, const Array& b);
Array operator>=(const Array& a, const Array& b);

// On bits of integers and on bools; shifts on integers. A right shift keeps the sign of signed integers.
Array operator&(const Array& a, const Array& b);
Array operator|(const Array& a, const Array& b);
Array operator^(const Array& a, const Array& b);
Array operator~(const Array& x);
Array operator<<(const Array& a, const Array& b);
Array operator>>(const Array& a, const Array& b);

// `a` becomes another handle; other handles to the old array keep it.
inline Array& operator+=(Array& a, const Array& b) { return a = a + b; }
inline Array& operator-=(Array& a, const Array& b) { return a = a - b; }
inline Array& operator*=(Array& a, const Array& b) { return a = a * b; }
inline Array& operator/=(Array& a, const Array& b) { return a = a / b; }
inline Array& operator%=(Array& a, const Array& b) { return a = a % b; }
inline Array& operator&=(Array& a, const Array& b) { return a = a & b; }
inline Array& operator|=(Array& a, const Array& b) { return a = a | b; }
inline Array& operator^=(Array& a, const Array& b) { return a = a ^ b; }
inline Array& operator<<=(Array& a, const Array& b) { return a = a << b; }
inline Array& operator>>=(Array& a, const Array& b) { return a = a >> b; }

// Both hand NaN on. Where a and b are equal each gets half of the gradient.
Array maximum(const Array& a, const Array& b);
Array minimum(const Array& a, const Array& b);
Array pow(const Array& a, const Array& b);
// log(exp(a) + exp(b)), without overflow. Integers become f32. Where a and b are the same infinity each gets half of
// the gradient.
Array logaddexp(const Array& a, const Array& b);
Array square(const Array& x);
Array abs(const Array& x);
Array sign(const Array& x);

// Integers stay as they are; round goes to the nearest, ties to even.
Array floor(const Array& x);
Array ceil(const Array& x);
Array round(const Array& x);

// Integers and bools become f32.
Array exp(const Array& x);
Array log(const Array& x);
Array log1p(const Array& x);
Array expm1(const Array& x);
Array tanh(const Array& x);
Array sigmoid(const Array& x);   // 1 / (1 + e^-x)
Array logistic(const Array& x);  // the same
Array sqrt(const Array& x);
Array rsqrt(const Array& x);
Array erf(const Array& x);
Array erf_inv(const Array& x);
Array sin(const Array& x);
Array cos(const Array& x);

// Where `condition` (not zero) the element of a, else that of b. Only the chosen side gets the gradient.
Array where(const Array& condition, const Array& a, const Array& b);
// x kept between lo and hi.
Array clip(const Array& x, const Array& lo, const Array& hi);

Array isfinite(const Array& x);
Array isnan(const Array& x);
Array isinf(const Array& x);

// Of "not zero".
Array logical_and(const Array& a, const Array& b);
Array logical_xor(const Array& a, const Array& b);
Array logical_or(const Array& a, const Array& b);
Array logical_not(const Array& x);

// The elements converted. To bool: not zero. A float becomes an integer by dropping its fraction.
Array astype(const Array& x, DType dtype);

// max(x, 0), with gradient 0 at 0.
Array relu(const Array& x);
// x Phi(x): by the tanh formula, and by erf.
Array gelu(const Array& x);
Array gelu_exact(const Array& x);
// x sigmoid(x).
Array silu(const Array& x);
// log(1 + exp(x)) = logaddexp(x, 0), and log(sigmoid(x)) = -softplus(-x), without overflow. Derivatives of every order
// are exact, at 0 and far out too.
Array softplus(const Array& x);
Array log_sigmoid(const Array& x);

// x, through which no gradient flows.
Array stop_gradient(const Array& x);

}  // namespace lockstep
