// More elementwise functions of jax.numpy: rounding, division, signs and bits of numbers, comparisons within a
// tolerance, selection among several arrays. Broadcasting and promotion are those of math.h. Safe to call from any
// thread.
//
//   auto [quotient, rest] = divmod(x, 7);
//   Array y = select({x < 0, x < 10}, {-x, x * x}, 100);
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

// ---- Rounding.

// Towards zero; integers are unchanged. fix is the same.
Array trunc(const Operand& x);
Array fix(const Operand& x);
// To nearest, ties to even. Integers become f32.
Array rint(const Operand& x);
// To a number of decimals; negative: to tens, hundreds and so on. Throws Error for negative decimals of integers.
Array round(const Operand& x, int64_t decimals);

// ---- Arithmetic.

Array positive(const Operand& x);
Array negative(const Operand& x);
Array absolute(const Operand& x);
Array fabs(const Operand& x);  // integers become f32
Array reciprocal(const Operand& x);
Array true_divide(const Operand& a, const Operand& b);
Array power(const Operand& a, const Operand& b);
// a to the power b in a floating type.
Array float_power(const Operand& a, const Operand& b);
// The remainder with the sign of the divisor (mod, remainder) or of the dividend (fmod).
Array remainder(const Operand& a, const Operand& b);
Array mod(const Operand& a, const Operand& b);
Array fmod(const Operand& a, const Operand& b);
// {floor_divide(a, b), remainder(a, b)}.
std::pair<Array, Array> divmod(const Operand& a, const Operand& b);
// The fraction and the whole part, both with the sign of x.
std::pair<Array, Array> modf(const Operand& x);
Array deg2rad(const Operand& x);
Array rad2deg(const Operand& x);
Array radians(const Operand& x);
Array degrees(const Operand& x);
// sin(pi x) / (pi x), and 1 at 0.
Array sinc(const Operand& x);
// 0 where x < 0, 1 where x > 0, else `at_zero`.
Array heaviside(const Operand& x, const Operand& at_zero);
// The greatest common divisor and the least common multiple of integers; not negative.
Array gcd(const Operand& a, const Operand& b);
Array lcm(const Operand& a, const Operand& b);

// The larger and the smaller of two elements; a NaN loses against a number.
Array fmax(const Operand& a, const Operand& b);
Array fmin(const Operand& a, const Operand& b);

// Limits of clip(): an undefined bound does not limit.
struct ClipBounds {
  Array min = {}, max = {};
};
Array clip(const Operand& x, const ClipBounds& bounds);

// ---- The representation of numbers.

Array signbit(const Operand& x);
// a with the sign of b. Integers become f32.
Array copysign(const Operand& a, const Operand& b);
// The next representable number after a in the direction of b, of f64, f32 or bf16. Integers become f32.
Array nextafter(const Operand& a, const Operand& b);
// {m, e} with x = m * 2^e and 0.5 <= |m| < 1; e is i32. e is 0 for 0, infinities and NaN.
std::pair<Array, Array> frexp(const Operand& x);
// x * 2^e for integers e.
Array ldexp(const Operand& x, const Operand& e);

Array isposinf(const Operand& x);
Array isneginf(const Operand& x);

struct NanToNumOptions {
  Array nan = 0;
  Array posinf = {}, neginf = {};  // undefined: the greatest and the least finite number of the type
};
// Replaces NaN and infinities.
Array nan_to_num(const Operand& x, const NanToNumOptions& options = {});

// ---- Bits of integers and bools.

Array bitwise_and(const Operand& a, const Operand& b);
Array bitwise_or(const Operand& a, const Operand& b);
Array bitwise_xor(const Operand& a, const Operand& b);
Array bitwise_not(const Operand& x);
Array bitwise_invert(const Operand& x);
Array invert(const Operand& x);
Array left_shift(const Operand& a, const Operand& b);
Array right_shift(const Operand& a, const Operand& b);
// The number of bits that are 1 in the representation of x (population_count), or of |x| (bitwise_count, as u8).
Array population_count(const Operand& x);
Array bitwise_count(const Operand& x);

// ---- Comparisons.

struct CloseOptions {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;
};
// |a - b| <= atol + rtol * |b|; infinities are close to themselves. allclose: for all elements.
Array isclose(const Operand& a, const Operand& b, const CloseOptions& options = {});
Array allclose(const Operand& a, const Operand& b, const CloseOptions& options = {});
// Whether shapes and all elements are equal; array_equiv: whether they are equal after broadcasting. bool scalars.
Array array_equal(const Operand& a, const Operand& b, bool equal_nan = false);
Array array_equiv(const Operand& a, const Operand& b);

// ---- Selection.

// The element of the first choice whose condition is true, else of `otherwise`. Throws Error unless there are as many
// choices as conditions, and at least one.
Array select(const Operands& conditions, const Operands& choices, const Operand& otherwise = 0);
// The element of cases[which]; `which` is bool or integer and is clamped. The cases have one type; `which` is a scalar
// or has their shape.
Array select_n(const Operand& which, const Operands& cases);
// The element of the last function whose condition is true, applied to x. One more function than conditions: the last
// applies where no condition is true; else 0.
Array piecewise(const Operand& x, const Operands& conditions,
                const std::vector<std::function<Array(const Array&)>>& functions);

}  // namespace lockstep
