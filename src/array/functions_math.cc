#include <limits>

#include "array/apply.h"
#include "array/node.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/math.h"
#include "ops/activations.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;
using detail::CallKey;
using detail::common_dtype;
using detail::convert;
using detail::promote_and_broadcast;

using Unary = Value (*)(Value);
using Binary = Value (*)(Value, Value);

Array binary_in(const char* what, DType dtype, const Array& a, const Array& b, Binary f) {
  return apply1(
      what, {a, b},
      [&](Builder&, const Values& v) {
        const Values operands = promote_and_broadcast(what, v, dtype);
        return f(operands[0], operands[1]);
      },
      dtype, CallKey(what, f, dtype));
}

DType common_dtype_of(const Array& a, const Array& b) {
  const Array both[] = {a, b};
  return common_dtype(both);
}

Array arithmetic(const char* what, const Array& a, const Array& b, Binary f) {
  return binary_in(what, detail::number_of(common_dtype_of(a, b)), a, b, f);
}

// Same; but bools stay bools, combined by `of_bools`.
Array ring(const char* what, const Array& a, const Array& b, Binary f, Binary of_bools) {
  const DType dtype = common_dtype_of(a, b);
  return binary_in(what, dtype, a, b, dtype == DType::boolean ? of_bools : f);
}

Array comparison(const char* what, const Array& a, const Array& b, Binary f) {
  return binary_in(what, common_dtype_of(a, b), a, b, f);
}

Array bitwise(const char* what, const Array& a, const Array& b, Binary f) {
  const DType dtype = common_dtype_of(a, b);
  if (is_inexact(dtype))
    throw_error("{}: operands {} and {}; bitwise operations need integers or bools: use astype(x, i32)", what,
                to_string(a.type()), to_string(b.type()));
  return binary_in(what, dtype, a, b, f);
}

Array shift(const char* what, const Array& a, const Array& b, Binary f) {
  const DType dtype = detail::number_of(common_dtype_of(a, b));
  if (is_inexact(dtype))
    throw_error("{}: operands {} and {}; shifts need integers: use astype(x, i32)", what, to_string(a.type()),
                to_string(b.type()));
  return binary_in(what, dtype, a, b, f);
}

Array logical(const char* what, const Array& a, const Array& b, Binary f) {
  return apply1(
      what, {a, b},
      [&](Builder&, const Values& v) {
        const Values operands = promote_and_broadcast(what, v, DType::boolean);
        return f(operands[0], operands[1]);
      },
      {}, CallKey(what, f));
}

Array floating(const char* what, const Array& x, Unary f) {
  return apply1(
      what, {x}, [&](Builder&, const Values& v) { return f(detail::to_floating(v[0])); }, {}, CallKey(what, f));
}

Array numeric(const char* what, const Array& x, Unary f) {
  return apply1(
      what, {x}, [&](Builder&, const Values& v) { return f(detail::to_number(v[0])); }, {}, CallKey(what, f));
}

Array rounding(const char* what, const Array& x, Unary f) {
  return apply1(
      what, {x}, [&](Builder&, const Values& v) { return is_inexact(v[0].dtype()) ? f(v[0]) : v[0]; }, {},
      CallKey(what, f));
}

// Throws Error for the power of integers with a negative number as exponent, which is no integer.
void check_integer_power(const Array& base, const Array& exponent) {
  const detail::Node* number = exponent.defined() ? exponent.node() : nullptr;
  if (!number || number->kind != detail::Node::Kind::literal || is_inexact(number->type->dtype) ||
      number->integer >= 0 || !base.defined() || is_inexact(base.dtype()))
    return;
  throw_error("pow: integers {} to the negative power {}; use float_power, or convert the base with astype(x, f32)",
              to_string(base.type()), number->integer);
}

// A bool constant of x's shape.
Value constant(Value x, bool value) { return full(x.builder(), {DType::boolean, x.shape()}, value ? 1 : 0); }

struct Division {
  Value quotient, remainder;
};

// Division rounded towards minus infinity, so that the remainder has the sign of b.
Division divide(Value a, Value b) {
  const Value zero = zeros_like(a), r = rem(a, b);
  if (!is_signed(a.dtype())) return {div(a, b), r};
  const Value off = bit_and(ne(r, zero), ne(lt(r, zero), lt(b, zero)));
  const Value q = is_floating(a.dtype()) ? div(sub(a, r), b) : div(a, b);
  const Value floored = select(off, sub(q, ones_like(q)), q);
  return {is_floating(a.dtype()) ? round(floored) : floored, select(off, add(r, b), r)};
}

}  // namespace

Array operator+(const Operand& a, const Operand& b) { return ring("add", a, b, add, bit_or); }
Array operator-(const Operand& a, const Operand& b) { return arithmetic("subtract", a, b, sub); }
Array operator*(const Operand& a, const Operand& b) { return ring("multiply", a, b, mul, bit_and); }
Array operator/(const Operand& a, const Operand& b) {
  return binary_in("divide", detail::floating_of(common_dtype_of(a, b)), a, b, div);
}
Array operator%(const Operand& a, const Operand& b) {
  return arithmetic("remainder", a, b, [](Value x, Value y) { return divide(x, y).remainder; });
}
Array operator-(const Operand& x) { return numeric("negate", x, neg); }
Array floor_divide(const Operand& a, const Operand& b) {
  return arithmetic("floor_divide", a, b, [](Value x, Value y) { return divide(x, y).quotient; });
}

Array operator==(const Operand& a, const Operand& b) { return comparison("equal", a, b, eq); }
Array operator!=(const Operand& a, const Operand& b) { return comparison("not_equal", a, b, ne); }
Array operator<(const Operand& a, const Operand& b) { return comparison("less", a, b, lt); }
Array operator<=(const Operand& a, const Operand& b) { return comparison("less_equal", a, b, le); }
Array operator>(const Operand& a, const Operand& b) { return comparison("greater", a, b, gt); }
Array operator>=(const Operand& a, const Operand& b) { return comparison("greater_equal", a, b, ge); }

Array operator&(const Operand& a, const Operand& b) { return bitwise("bit_and", a, b, bit_and); }
Array operator|(const Operand& a, const Operand& b) { return bitwise("bit_or", a, b, bit_or); }
Array operator^(const Operand& a, const Operand& b) { return bitwise("bit_xor", a, b, bit_xor); }
Array operator<<(const Operand& a, const Operand& b) { return shift("shift_left", a, b, shift_left); }
Array operator>>(const Operand& a, const Operand& b) { return shift("shift_right", a, b, shift_right); }
Array operator~(const Operand& x) {
  if (is_inexact(x.dtype()))
    throw_error("bit_not: operand {}; bitwise operations need integers or bools: use astype(x, i32)",
                to_string(x.type()));
  return apply1(
      "bit_not", {x}, [](Builder&, const Values& v) { return bit_not(v[0]); }, {}, CallKey("bit_not"));
}

Array maximum(const Operand& a, const Operand& b) { return comparison("maximum", a, b, maximum); }
Array minimum(const Operand& a, const Operand& b) { return comparison("minimum", a, b, minimum); }
Array pow(const Operand& a, const Operand& b) {
  check_integer_power(a, b);
  return arithmetic("pow", a, b, pow);
}
Array logaddexp(const Operand& a, const Operand& b) {
  return binary_in("logaddexp", detail::floating_of(common_dtype_of(a, b)), a, b, logaddexp);
}
Array square(const Operand& x) {
  return numeric("square", x, [](Value v) { return mul(v, v); });
}
Array abs(const Operand& x) { return numeric("abs", x, abs); }
Array sign(const Operand& x) { return numeric("sign", x, sign); }

Array floor(const Operand& x) { return rounding("floor", x, floor); }
Array ceil(const Operand& x) { return rounding("ceil", x, ceil); }
Array round(const Operand& x) { return rounding("round", x, round); }

Array exp(const Operand& x) { return floating("exp", x, exp); }
Array log(const Operand& x) { return floating("log", x, log); }
Array log1p(const Operand& x) { return floating("log1p", x, log1p); }
Array expm1(const Operand& x) { return floating("expm1", x, expm1); }
Array tanh(const Operand& x) { return floating("tanh", x, tanh); }
Array sigmoid(const Operand& x) { return floating("sigmoid", x, logistic); }
Array logistic(const Operand& x) { return floating("logistic", x, logistic); }
Array sqrt(const Operand& x) { return floating("sqrt", x, sqrt); }
Array rsqrt(const Operand& x) { return floating("rsqrt", x, rsqrt); }
Array erf(const Operand& x) { return floating("erf", x, erf); }
Array erf_inv(const Operand& x) { return floating("erf_inv", x, erf_inv); }
Array sin(const Operand& x) { return floating("sin", x, sin); }
Array cos(const Operand& x) { return floating("cos", x, cos); }

Array where(const Operand& condition, const Operand& a, const Operand& b) {
  const DType dtype = common_dtype_of(a, b);
  // Numbers among the arguments become constants of `dtype`; a numeric condition must not.
  const Array chosen_by =
      condition.rank() == 0 && condition.dtype() != DType::boolean ? condition != 0 : Array(condition);
  return apply1(
      "where", {chosen_by, a, b},
      [&](Builder&, const Values& v) {
        const Shape shapes[] = {v[0].shape(), v[1].shape(), v[2].shape()};
        const Shape shape = detail::broadcast_shape("where", shapes);
        auto fit = [&](Value x, DType t) { return detail::broadcast_value("where", convert(x, t), shape); };
        return select(fit(v[0], DType::boolean), fit(v[1], dtype), fit(v[2], dtype));
      },
      dtype, CallKey("where", dtype));
}

Array clip(const Operand& x, const Operand& lo, const Operand& hi) {
  const Array all[] = {x, lo, hi};
  const DType dtype = common_dtype(all);
  return apply1(
      "clip", {x, lo, hi},
      [&](Builder&, const Values& v) {
        const Values operands = promote_and_broadcast("clip", v, dtype);
        return minimum(maximum(operands[0], operands[1]), operands[2]);
      },
      dtype, CallKey("clip", dtype));
}

Array isfinite(const Operand& x) {
  return apply1("isfinite", {x}, [](Builder&, const Values& v) {
    return is_inexact(v[0].dtype()) ? is_finite(v[0]) : constant(v[0], true);
  });
}
Array isnan(const Operand& x) {
  return apply1("isnan", {x}, [](Builder&, const Values& v) {
    return is_inexact(v[0].dtype()) ? ne(v[0], v[0]) : constant(v[0], false);
  });
}
Array isinf(const Operand& x) {
  return apply1("isinf", {x}, [](Builder&, const Values& v) {
    if (!is_inexact(v[0].dtype())) return constant(v[0], false);
    const Value size = abs(v[0]);
    return eq(size, full_like(size, std::numeric_limits<double>::infinity()));
  });
}

Array logical_xor(const Operand& a, const Operand& b) { return logical("logical_xor", a, b, bit_xor); }
Array logical_and(const Operand& a, const Operand& b) { return logical("logical_and", a, b, bit_and); }
Array logical_or(const Operand& a, const Operand& b) { return logical("logical_or", a, b, bit_or); }
Array logical_not(const Operand& x) {
  return apply1("logical_not", {x}, [](Builder&, const Values& v) { return bit_not(convert(v[0], DType::boolean)); });
}

Array astype(const Operand& x, DType dtype) {
  // A number is converted to a floating type directly, not via f32.
  // A complex number only to a complex type: another drops its imaginary part.
  const bool complex_number = is_complex(x.dtype()) && !is_complex(dtype);
  const auto literal = is_inexact(dtype) && !complex_number ? std::optional<DType>(dtype) : std::nullopt;
  return apply1(
      "astype", {x}, [&](Builder&, const Values& v) { return convert(v[0], dtype); }, literal,
      CallKey("astype", dtype));
}

Array relu(const Operand& x) { return numeric("relu", x, relu); }
Array gelu(const Operand& x) { return floating("gelu", x, gelu); }
Array gelu_exact(const Operand& x) { return floating("gelu_exact", x, gelu_exact); }
Array silu(const Operand& x) { return floating("silu", x, silu); }
Array softplus(const Operand& x) { return floating("softplus", x, softplus); }
Array log_sigmoid(const Operand& x) {
  return floating("log_sigmoid", x, [](Value v) { return -softplus(-v); });
}

Array stop_gradient(const Operand& x) {
  return apply1("stop_gradient", {x}, [](Builder&, const Values& v) { return stop_gradient(v[0]); });
}

}  // namespace lockstep
