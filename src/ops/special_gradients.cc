#include "ops/special_gradients.h"

#include "base/check.h"
#include "ops/elementwise.h"

namespace lockstep {

// One statement for each operand that emits equations: C++ does not order the operands of a call, and the program must
// not depend on the compiler.

Value square_minus_one(Value x) {
  const Value minus = x - 1.0;
  const Value plus = x + 1.0;
  return minus * plus;
}

Value over_square_sum(Value a, Value b) {
  const Value square_a = a * a;
  const Value square_b = b * b;
  return a / (square_a + square_b);
}

Value bessel_i0e_slope(Value x, Value y) {
  const Value first = bessel_i1e(x);
  return first - sign(x) * y;
}

Value bessel_i1e_slope(Value x, Value y) {
  const Value zero = eq(x, zeros_like(x));
  const Value reciprocal = 1.0 / select(zero, ones_like(x), x);
  const Value rate = y * (sign(x) + reciprocal);
  const Value slope = bessel_i0e(x) - rate;
  return select(zero, full_like(x, 0.5), slope);
}

Value zeta_slope(Value s, Value q) {
  const Value next = zeta(s + 1.0, q);
  return -(s * next);
}

Value gamma_density(Value a, Value x) {
  const Value log_x = log(x);
  const Value power = (a - 1.0) * log_x;
  const Value log_gamma = lgamma(a);
  return exp(power - x - log_gamma);
}

Value no_gradient(const char* function, const char* operand) {
  throw_error(
      "{}: there is no gradient with respect to {}; use stop_gradient({}), or differentiate by the other operand",
      function, operand, operand);
}

}  // namespace lockstep
