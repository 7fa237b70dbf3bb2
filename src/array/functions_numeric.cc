#include "lockstep/numeric.h"

#include <cmath>
#include <numbers>

#include "array/apply.h"
#include "array/bounded_loop.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "ops/elementwise.h"

namespace lockstep {
namespace {

using detail::apply1;

Array floating_array(const Array& x) { return is_inexact(x.dtype()) ? x : astype(x, f32); }

// Both arrays in their common type, which is floating if `inexact`.
std::pair<Array, Array> in_common_type(const Array& a, const Array& b, bool inexact) {
  const Array both[] = {a, b};
  const DType common = detail::common_dtype(both), dtype = inexact ? detail::floating_of(common) : common;
  return {astype(a, dtype), astype(b, dtype)};
}

void check_integers(const char* what, const Array& x) {
  if (is_floating(x.dtype()))
    throw_error("{}: the operand is {}; it must be an integer: use astype(x, i32)", what, to_string(x.type()));
}

double greatest_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    case DType::f64:
      return std::numeric_limits<double>::max();
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace

Array trunc(const Operand& x) {
  return apply1("trunc", {x}, [](Builder&, const Values& v) {
    if (!is_floating(v[0].dtype())) return v[0];
    return select(lt(v[0], zeros_like(v[0])), ceil(v[0]), floor(v[0]));
  });
}
Array fix(const Operand& x) { return trunc(x); }
Array rint(const Operand& x) { return round(floating_array(x)); }

Array round(const Operand& x, int64_t decimals) {
  if (decimals == 0) return round(x);
  if (!is_floating(x.dtype())) {
    if (decimals > 0) return x;
    throw_error("round: {} decimals of {}; convert it to a floating type first", decimals, to_string(x.type()));
  }
  const bool half = size_of(x.dtype()) < 4;
  const Array wide = half ? astype(x, f32) : Array(x);
  const double factor = std::pow(10.0, static_cast<double>(decimals));
  return astype(round(wide * factor) / factor, x.dtype());
}

Array positive(const Operand& x) { return x; }
Array negative(const Operand& x) { return -x; }
Array absolute(const Operand& x) { return abs(x); }
Array fabs(const Operand& x) { return abs(floating_array(x)); }
Array reciprocal(const Operand& x) { return 1 / floating_array(x); }
Array true_divide(const Operand& a, const Operand& b) { return a / b; }
Array power(const Operand& a, const Operand& b) { return pow(a, b); }
Array float_power(const Operand& a, const Operand& b) {
  const auto [base, exponent] = in_common_type(a, b, true);
  return pow(base, exponent);
}
Array remainder(const Operand& a, const Operand& b) { return a % b; }
Array mod(const Operand& a, const Operand& b) { return a % b; }

Array fmod(const Operand& a, const Operand& b) {
  const Array both[] = {a, b};
  const DType dtype = detail::number_of(detail::common_dtype(both));
  return apply1(
      "fmod", {a, b},
      [&](Builder&, const Values& v) {
        const Values operands = detail::promote_and_broadcast("fmod", v, dtype);
        return rem(operands[0], operands[1]);
      },
      dtype);
}

std::pair<Array, Array> divmod(const Operand& a, const Operand& b) { return {floor_divide(a, b), a % b}; }

std::pair<Array, Array> modf(const Operand& x) {
  const Array whole = trunc(floating_array(x));
  return {floating_array(x) - whole, whole};
}

Array deg2rad(const Operand& x) { return floating_array(x) * (std::numbers::pi / 180); }
Array rad2deg(const Operand& x) { return floating_array(x) * (180 / std::numbers::pi); }
Array radians(const Operand& x) { return deg2rad(x); }
Array degrees(const Operand& x) { return rad2deg(x); }

Array sinc(const Operand& x) {
  const Array angle = floating_array(x) * std::numbers::pi, at_zero = angle == 0;
  // The series has the right derivatives at 0.
  const Array square_angle = angle * angle, safe = where(at_zero, 1, angle);
  return where(at_zero, 1 + square_angle * (-1.0 / 6 + square_angle / 120), sin(safe) / safe);
}

Array heaviside(const Operand& x, const Operand& at_zero) {
  const auto [number, otherwise] = in_common_type(x, at_zero, true);
  return where(number < 0, 0, where(number > 0, 1, where(number == 0, otherwise, number)));  // NaN stays NaN
}

Array gcd(const Operand& a, const Operand& b) {
  check_integers("gcd", a);
  check_integers("gcd", b);
  const auto [first, second] = in_common_type(a + 0, b + 0, false);
  const Array zero = zeros_like(first + second);  // of the common shape
  // Euclid's algorithm takes the most rounds for Fibonacci numbers: 92 of them fit 64 bits.
  return detail::bounded_while(
      92, [](const detail::Arrays& s) { return s[1] != 0; },
      [](const detail::Arrays& s) {
        const Array open = s[1] != 0;
        return detail::Arrays{where(open, s[1], s[0]), where(open, fmod(s[0], where(open, s[1], 1)), 0)};
      },
      {abs(first) + zero, abs(second) + zero})[0];
}

Array lcm(const Operand& a, const Operand& b) {
  const Array divisor = gcd(a, b), safe = where(divisor == 0, 1, divisor);
  return where(divisor == 0, 0, abs(a) * floor_divide(abs(b), safe));
}

Array fmax(const Operand& a, const Operand& b) { return where((a > b) | isnan(b), a, b); }
Array fmin(const Operand& a, const Operand& b) { return where((a < b) | isnan(b), a, b); }

Array clip(const Operand& x, const ClipBounds& bounds) {
  const Array above = bounds.min.defined() ? maximum(x, bounds.min) : Array(x);
  return bounds.max.defined() ? minimum(above, bounds.max) : above;
}

Array isposinf(const Operand& x) { return is_floating(x.dtype()) ? x == HUGE_VAL : isinf(x); }
Array isneginf(const Operand& x) { return is_floating(x.dtype()) ? x == -HUGE_VAL : isinf(x); }

Array nan_to_num(const Operand& x, const NanToNumOptions& options) {
  if (!is_floating(x.dtype())) return x;
  const double most = greatest_of(x.dtype());
  const auto in_type = [&](const Array& value, double otherwise) {
    return value.defined() ? astype(value, x.dtype()) : astype(otherwise, x.dtype());
  };
  const Array finite =
      where(isposinf(x), in_type(options.posinf, most), where(isneginf(x), in_type(options.neginf, -most), x));
  return where(isnan(x), in_type(options.nan, 0), finite);
}

Array isclose(const Operand& a, const Operand& b, const CloseOptions& options) {
  const auto [x, y] = in_common_type(a, b, true);
  const Array near = (abs(x - y) <= options.atol + options.rtol * abs(y)) & isfinite(x) & isfinite(y);
  const Array close = near | ((x == y) & isinf(x));
  return options.equal_nan ? close | (isnan(x) & isnan(y)) : close;
}

Array allclose(const Operand& a, const Operand& b, const CloseOptions& options) { return all(isclose(a, b, options)); }

Array array_equal(const Operand& a, const Operand& b, bool equal_nan) {
  if (a.shape() != b.shape()) return full({}, false);
  const Array equal = a == b;
  return all(equal_nan ? equal | (isnan(a) & isnan(b)) : equal);
}

Array array_equiv(const Operand& a, const Operand& b) {
  const auto extent_from_end = [](const Shape& s, size_t i) { return i < s.size() ? s[s.size() - 1 - i] : 1; };
  for (size_t i = 0; i < std::max(a.shape().size(), b.shape().size()); ++i) {
    const int64_t m = extent_from_end(a.shape(), i), n = extent_from_end(b.shape(), i);
    if (m != n && m != 1 && n != 1) return full({}, false);
  }
  return all(a == b);
}

Array select(const Operands& conditions, const Operands& choices, const Operand& otherwise) {
  if (conditions.empty() || conditions.size() != choices.size())
    throw_error("select: {} conditions and {} choices; pass one choice for each condition, at least one",
                conditions.size(), choices.size());
  std::vector<Array> all = choices;
  all.push_back(otherwise);
  const DType dtype = detail::common_dtype(all);
  Array out = astype(otherwise, dtype);
  for (size_t i = choices.size(); i-- > 0;) out = where(conditions[i], astype(choices[i], dtype), out);
  return out;
}

Array select_n(const Operand& which, const Operands& cases) {
  if (cases.empty()) throw_error("select_n: no cases given; pass at least one");
  for (const Array& each : cases)
    if (each.type() != cases[0].type())
      throw_error("select_n: cases {} and {} differ; all must have one type", to_string(cases[0].type()),
                  to_string(each.type()));
  if (which.rank() != 0 && which.shape() != cases[0].shape())
    throw_error("select_n: `which` is {} for cases {}; it must be a scalar or have their shape",
                to_string(which.type()), to_string(cases[0].type()));
  check_integers("select_n", which);
  const Array index = size_of(which.dtype()) < 4 ? astype(which, i32) : Array(which);
  Array out = cases[0];
  for (size_t i = 1; i < cases.size(); ++i) out = where(index >= static_cast<int64_t>(i), cases[i], out);
  return out;
}

Array piecewise(const Operand& x, const Operands& conditions,
                const std::vector<std::function<Array(const Array&)>>& functions) {
  const size_t n = conditions.size();
  if (functions.size() != n && functions.size() != n + 1)
    throw_error(
        "piecewise: {} conditions and {} functions; pass one function for each condition, and one more for none", n,
        functions.size());
  Array out = functions.size() > n ? astype(functions[n](x), x.dtype()) : zeros_like(x);
  for (size_t i = 0; i < n; ++i) out = where(conditions[i], astype(functions[i](x), x.dtype()), out);
  return out;
}

}  // namespace lockstep
