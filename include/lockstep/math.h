// Elementwise functions: operators, comparisons, selection, elementary functions.
//
//   Array y = where(x > 0, log1p(x), 0.f);
//
// Shapes broadcast as in NumPy: aligned at the last dimension, and a dimension of extent 1 is repeated.
// Element types are promoted by promote(); C++ numbers take the element type of the array. bool counts as i32 in
// arithmetic; but the sum and the product of two bools are bools: or, and. lockstep/complex.h says which functions take
// complex arrays. Throws Error for shapes that do not
// broadcast. Safe to call from any thread.
#pragma once

#include "lockstep/detail/no_logical_operators.h"
#include "lockstep/operand.h"

namespace lockstep {

// Arithmetic. Signed integers wrap around. `/` is true division: integers become f32. `%` has the sign of the
// divisor, as in NumPy.
Array operator+(const Operand& a, const Operand& b);
Array operator-(const Operand& a, const Operand& b);
Array operator*(const Operand& a, const Operand& b);
Array operator/(const Operand& a, const Operand& b);
Array operator%(const Operand& a, const Operand& b);
Array operator-(const Operand& x);

// The quotient rounded towards minus infinity. Integers stay integers.
Array floor_divide(const Operand& a, const Operand& b);

// Comparisons, which return bool arrays. Only one of a single element can be used in `if`; reduce others with
// any() or all().
Array operator==(const Operand& a, const Operand& b);
Array operator!=(const Operand& a, const Operand& b);
Array operator<(const Operand& a, const Operand& b);
Array operator<=(const Operand& a, const Operand& b);
Array operator>(const Operand& a, const Operand& b);
Array operator>=(const Operand& a, const Operand& b);

// Bitwise operators on integers and bools, and so the logical operators of each element: && and || of two
// arrays do not compile. Shifts on integers; a right shift of a signed integer is arithmetic.
Array operator&(const Operand& a, const Operand& b);
Array operator|(const Operand& a, const Operand& b);
Array operator^(const Operand& a, const Operand& b);
Array operator~(const Operand& x);
Array operator<<(const Operand& a, const Operand& b);
Array operator>>(const Operand& a, const Operand& b);

// Assign a new array to the handle `a`; other handles keep the old one.
inline Array& operator+=(Array& a, const Operand& b) { return a = a + b; }
inline Array& operator-=(Array& a, const Operand& b) { return a = a - b; }
inline Array& operator*=(Array& a, const Operand& b) { return a = a * b; }
inline Array& operator/=(Array& a, const Operand& b) { return a = a / b; }
inline Array& operator%=(Array& a, const Operand& b) { return a = a % b; }
inline Array& operator&=(Array& a, const Operand& b) { return a = a & b; }
inline Array& operator|=(Array& a, const Operand& b) { return a = a | b; }
inline Array& operator^=(Array& a, const Operand& b) { return a = a ^ b; }
inline Array& operator<<=(Array& a, const Operand& b) { return a = a << b; }
inline Array& operator>>=(Array& a, const Operand& b) { return a = a >> b; }

// The larger and the smaller of two elements; NaN propagates. Where a and b are equal, each gets half of the
// gradient.
Array maximum(const Operand& a, const Operand& b);
Array minimum(const Operand& a, const Operand& b);
Array pow(const Operand& a, const Operand& b);
// log(exp(a) + exp(b)) without overflow. Integers become f32. Where a and b are the same infinity, each gets
// half of the gradient.
Array logaddexp(const Operand& a, const Operand& b);
Array square(const Operand& x);
Array abs(const Operand& x);
Array sign(const Operand& x);

// Rounding; integers are unchanged. round() rounds to nearest, ties to even.
Array floor(const Operand& x);
Array ceil(const Operand& x);
Array round(const Operand& x);

// Elementary functions. Integers and bools become f32.
Array exp(const Operand& x);
Array log(const Operand& x);
Array log1p(const Operand& x);
Array expm1(const Operand& x);
Array tanh(const Operand& x);
Array sigmoid(const Operand& x);   // 1 / (1 + e^-x)
Array logistic(const Operand& x);  // the same
Array sqrt(const Operand& x);
Array rsqrt(const Operand& x);
Array erf(const Operand& x);
Array erf_inv(const Operand& x);
Array sin(const Operand& x);
Array cos(const Operand& x);

// Selects from a where `condition` is nonzero, else from b. Only the selected side gets the gradient.
Array where(const Operand& condition, const Operand& a, const Operand& b);
// x limited to [lo, hi].
Array clip(const Operand& x, const Operand& lo, const Operand& hi);

// Tests, which return bool arrays.
Array isfinite(const Operand& x);
Array isnan(const Operand& x);
Array isinf(const Operand& x);

// Logical operations, which return bool arrays. Nonzero counts as true.
Array logical_and(const Operand& a, const Operand& b);
Array logical_xor(const Operand& a, const Operand& b);
Array logical_or(const Operand& a, const Operand& b);
Array logical_not(const Operand& x);

// Converts the elements. To bool: nonzero is true. From float to integer: the fraction is dropped.
Array astype(const Operand& x, DType dtype);

// max(x, 0), with gradient 0 at 0.
Array relu(const Operand& x);
// x * Phi(x), where Phi is the normal distribution function: by the tanh approximation, and exactly by erf.
Array gelu(const Operand& x);
Array gelu_exact(const Operand& x);
// x * sigmoid(x).
Array silu(const Operand& x);
// log(1 + exp(x)), and log(sigmoid(x)) = -softplus(-x), without overflow. Derivatives of every order are
// exact, including at 0 and for large |x|.
Array softplus(const Operand& x);
Array log_sigmoid(const Operand& x);

// Returns x and blocks its gradient.
Array stop_gradient(const Operand& x);

}  // namespace lockstep
