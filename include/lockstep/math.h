// Elementwise functions: operators, comparisons, selection, elementary functions.
//
//   Array y = where(x > 0, log1p(x), 0.f);
//
// Shapes broadcast as in NumPy: aligned at the last dimension, and a dimension of extent 1 is repeated.
// Element types are promoted by promote(); C++ numbers take the element type of the array. bool counts as i32
// in arithmetic; but the sum and the product of two bools are bools: or, and. Throws Error for shapes that do not
// broadcast. Safe to call from any thread.
#pragma once

#include "lockstep/array.h"

namespace lockstep {

// Arithmetic. Signed integers wrap around. `/` is true division: integers become f32. `%` has the sign of the
// divisor, as in NumPy.
Array operator+(const Array& a, const Array& b);
Array operator-(const Array& a, const Array& b);
Array operator*(const Array& a, const Array& b);
Array operator/(const Array& a, const Array& b);
Array operator%(const Array& a, const Array& b);
Array operator-(const Array& x);

// The quotient rounded towards minus infinity. Integers stay integers.
Array floor_divide(const Array& a, const Array& b);

// Comparisons, which return bool arrays. Only one of a single element can be used in `if`; reduce others with
// any() or all().
Array operator==(const Array& a, const Array& b);
Array operator!=(const Array& a, const Array& b);
Array operator<(const Array& a, const Array& b);
Array operator<=(const Array& a, const Array& b);
Array operator>(const Array& a, const Array& b);
Array operator>=(const Array& a, const Array& b);

// Bitwise operators on integers and bools; shifts on integers. A right shift of a signed integer is
// arithmetic.
Array operator&(const Array& a, const Array& b);
Array operator|(const Array& a, const Array& b);
Array operator^(const Array& a, const Array& b);
Array operator~(const Array& x);
Array operator<<(const Array& a, const Array& b);
Array operator>>(const Array& a, const Array& b);

// Assign a new array to the handle `a`; other handles keep the old one.
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

// The larger and the smaller of two elements; NaN propagates. Where a and b are equal, each gets half of the
// gradient.
Array maximum(const Array& a, const Array& b);
Array minimum(const Array& a, const Array& b);
Array pow(const Array& a, const Array& b);
// log(exp(a) + exp(b)) without overflow. Integers become f32. Where a and b are the same infinity, each gets
// half of the gradient.
Array logaddexp(const Array& a, const Array& b);
Array square(const Array& x);
Array abs(const Array& x);
Array sign(const Array& x);

// Rounding; integers are unchanged. round() rounds to nearest, ties to even.
Array floor(const Array& x);
Array ceil(const Array& x);
Array round(const Array& x);

// Elementary functions. Integers and bools become f32.
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

// Selects from a where `condition` is nonzero, else from b. Only the selected side gets the gradient.
Array where(const Array& condition, const Array& a, const Array& b);
// x limited to [lo, hi].
Array clip(const Array& x, const Array& lo, const Array& hi);

// Tests, which return bool arrays.
Array isfinite(const Array& x);
Array isnan(const Array& x);
Array isinf(const Array& x);

// Logical operations, which return bool arrays. Nonzero counts as true.
Array logical_and(const Array& a, const Array& b);
Array logical_xor(const Array& a, const Array& b);
Array logical_or(const Array& a, const Array& b);
Array logical_not(const Array& x);

// Converts the elements. To bool: nonzero is true. From float to integer: the fraction is dropped.
Array astype(const Array& x, DType dtype);

// max(x, 0), with gradient 0 at 0.
Array relu(const Array& x);
// x * Phi(x), where Phi is the normal distribution function: by the tanh approximation, and exactly by erf.
Array gelu(const Array& x);
Array gelu_exact(const Array& x);
// x * sigmoid(x).
Array silu(const Array& x);
// log(1 + exp(x)), and log(sigmoid(x)) = -softplus(-x), without overflow. Derivatives of every order are
// exact, including at 0 and for large |x|.
Array softplus(const Array& x);
Array log_sigmoid(const Array& x);

// Returns x and blocks its gradient.
Array stop_gradient(const Array& x);

}  // namespace lockstep
