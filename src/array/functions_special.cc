#include "lockstep/special.h"

#include <limits>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/math.h"
#include "ops/elementwise.h"

namespace lockstep {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kLogPi = 1.1447298858494002, kHalfLogTwoPi = 0.91893853320467274, kRootHalf = 0.70710678118654752;

Array in_floats(const char* what, const Array& x, Value (*f)(Value)) {
  return detail::apply1(what, {x}, [&](Builder&, const Values& v) { return f(detail::to_floating(v[0])); });
}

Array in_floats(const char* what, const Array& a, const Array& b, Value (*f)(Value, Value)) {
  const Array both[] = {a, b};
  const DType dtype = detail::floating_of(detail::common_dtype(both));
  return detail::apply1(
      what, {a, b},
      [&](Builder&, const Values& v) {
        const Values operands = detail::promote_and_broadcast(what, v, dtype);
        return f(operands[0], operands[1]);
      },
      dtype);
}

Value is_zero(Value x) { return eq(x, zeros_like(x)); }

// x f(y), and 0 for x = 0 even where f(y) is not finite. The gradient at x = 0 is f(y) elsewhere.
template <Value (*f)(Value)>
Value times_log(Value x, Value y) {
  const Value undefined = bit_and(bit_not(is_finite(f(y))), eq(y, y));  // but NaN stays NaN
  const Value ignored = bit_and(is_zero(x), undefined);
  return x * f(select(ignored, ones_like(y), y));
}

Value entropy(Value x) {
  const Value none = zeros_like(x);
  const Value value = -times_log<lockstep::log>(x, x);
  const Value negative = lt(x, none);
  return select(negative, full_like(x, -kInfinite), value);
}

Value relative_entropy(Value p, Value q) {
  const Value zero = zeros_like(p), one = ones_like(p);
  const Value p_positive = gt(p, zero);
  const Value both_positive = bit_and(p_positive, gt(q, zero));
  const Value p_zero = eq(p, zero);
  const Value vanishes = bit_and(p_zero, ge(q, zero));
  const Value safe_p = select(both_positive, p, one);
  const Value safe_q = select(both_positive, q, one);
  const Value inside = safe_p * log(safe_p / safe_q);
  return select(both_positive, inside, select(vanishes, zero, full_like(p, kInfinite)));
}

Value normal_probability(Value x) { return 0.5 * erfc(-kRootHalf * x); }

// Below `low`: the logarithm of the asymptotic series of Mills' ratio. Each branch is computed at a point where it is
// finite.
Value log_normal_probability(Value x) {
  const double low = x.dtype() == DType::f64 ? -20 : -10;
  const Value limit = full_like(x, low), zero = zeros_like(x);
  const Value is_low = lt(x, limit);
  const Value is_positive = gt(x, zero);
  const Value middle = select(is_positive, zero, select(is_low, limit, x));
  const Value upper = select(is_positive, x, zero);
  const Value below = select(is_low, x, limit);
  const Value z = 1.0 / (below * below);
  Value series = full_like(x, -15.0) * z;
  for (double factor = 13; factor > 0; factor -= 2) {
    const Value sum = 1.0 + series;
    series = sum * (-factor * z);
  }
  const Value square = 0.5 * (below * below);
  const Value size = log(-below);
  const Value tail = log1p(series) - size - square - kHalfLogTwoPi;
  const Value left = log(normal_probability(middle));
  const Value right = log1p(-normal_probability(-upper));
  // NaN is in no branch and passes through the middle one.
  return select(is_low, tail, select(is_positive, right, left));
}

}  // namespace

Array log2(const Operand& x) { return in_floats("log2", x, log2); }
Array log10(const Operand& x) { return in_floats("log10", x, log10); }
Array exp2(const Operand& x) {
  return in_floats("exp2", x, [](Value v) { return pow(full_like(v, 2.0), v); });
}
Array logaddexp2(const Operand& a, const Operand& b) {
  return in_floats("logaddexp2", a, b, [](Value x, Value y) {
    constexpr double kLogTwo = 0.69314718055994531;
    const Value first = kLogTwo * x;
    return logaddexp(first, kLogTwo * y) / kLogTwo;
  });
}
Array cbrt(const Operand& x) { return in_floats("cbrt", x, cbrt); }
Array hypot(const Operand& a, const Operand& b) { return in_floats("hypot", a, b, hypot); }
Array tan(const Operand& x) { return in_floats("tan", x, tan); }
Array asin(const Operand& x) { return in_floats("asin", x, asin); }
Array acos(const Operand& x) { return in_floats("acos", x, acos); }
Array atan(const Operand& x) { return in_floats("atan", x, atan); }
Array atan2(const Operand& y, const Operand& x) { return in_floats("atan2", y, x, atan2); }
Array sinh(const Operand& x) { return in_floats("sinh", x, sinh); }
Array cosh(const Operand& x) { return in_floats("cosh", x, cosh); }
Array asinh(const Operand& x) { return in_floats("asinh", x, asinh); }
Array acosh(const Operand& x) { return in_floats("acosh", x, acosh); }
Array atanh(const Operand& x) { return in_floats("atanh", x, atanh); }
Array erfc(const Operand& x) { return in_floats("erfc", x, erfc); }

namespace special {

Array erfinv(const Operand& x) { return in_floats("special::erfinv", x, erf_inv); }

Array gammaln(const Operand& x) { return in_floats("special::gammaln", x, lgamma); }
Array gammasgn(const Operand& x) {
  return in_floats("special::gammasgn", x, [](Value v) {
    const Value whole = floor(v);
    const Value half = 0.5 * whole;
    const Value is_odd = ne(floor(half), half);
    const Value negative = lt(v, zeros_like(v));
    const Value one = ones_like(v);
    const Value sign = select(bit_and(negative, is_odd), full_like(v, -1.0), one);
    // NaN for the negative integers, where gamma is not defined.
    const Value pole = bit_and(negative, eq(v, whole));
    return select(pole, full_like(v, std::numeric_limits<double>::quiet_NaN()), sign);
  });
}
Array gamma(const Operand& x) { return gammasgn(x) * exp(gammaln(x)); }
Array digamma(const Operand& x) { return in_floats("special::digamma", x, lockstep::digamma); }
Array polygamma(const Operand& n, const Operand& x) {
  return in_floats("special::polygamma", n, x, [](Value order, Value v) {
    const Value is_first = is_zero(order);
    // Where the order is 0, zeta(1) would be infinite.
    const Value next = 1.0 + select(is_first, ones_like(order), order);
    const Value half = 0.5 * next;
    const Value is_even = eq(floor(half), half);
    const Value one = ones_like(v);
    const Value sign = select(is_even, one, full_like(v, -1.0));
    const Value size = sign * exp(lgamma(next));
    const Value higher = size * lockstep::zeta(next, v);
    return select(is_first, lockstep::digamma(v), higher);
  });
}
Array factorial(const Operand& n) { return where(n < 0, 0, exp(gammaln(n + 1))); }
Array multigammaln(const Operand& a, int64_t d) {
  if (d < 1) throw_error("special::multigammaln: d is {}; it must be at least 1", d);
  Array sum = gammaln(a);
  for (int64_t i = 1; i < d; ++i) sum = sum + gammaln(a - 0.5 * static_cast<double>(i));
  return sum + 0.25 * kLogPi * static_cast<double>(d * (d - 1));
}
Array betaln(const Operand& a, const Operand& b) {
  const Array sum = gammaln(a + b);  // of the type that both promote to
  return gammaln(astype(a, sum.dtype())) + gammaln(astype(b, sum.dtype())) - sum;
}
Array beta(const Operand& a, const Operand& b) {
  return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * exp(betaln(a, b));
}
Array gammainc(const Operand& a, const Operand& x) { return in_floats("special::gammainc", a, x, igamma); }
Array gammaincc(const Operand& a, const Operand& x) { return in_floats("special::gammaincc", a, x, igammac); }
Array zeta(const Operand& x, const Operand& q) { return in_floats("special::zeta", x, q, lockstep::zeta); }

Array i0e(const Operand& x) { return in_floats("special::i0e", x, bessel_i0e); }
Array i1e(const Operand& x) { return in_floats("special::i1e", x, bessel_i1e); }
Array i0(const Operand& x) { return exp(abs(x)) * i0e(x); }
Array i1(const Operand& x) { return exp(abs(x)) * i1e(x); }

Array ndtr(const Operand& x) { return in_floats("special::ndtr", x, normal_probability); }
Array log_ndtr(const Operand& x) { return in_floats("special::log_ndtr", x, log_normal_probability); }
Array ndtri(const Operand& p) { return in_floats("special::ndtri", p, lockstep::ndtri); }

Array expit(const Operand& x) { return in_floats("special::expit", x, logistic); }
Array logit(const Operand& p) {
  return in_floats("special::logit", p, [](Value v) { return log(v / (1.0 - v)); });
}
Array xlogy(const Operand& x, const Operand& y) { return in_floats("special::xlogy", x, y, times_log<lockstep::log>); }
Array xlog1py(const Operand& x, const Operand& y) {
  return in_floats("special::xlog1py", x, y, times_log<lockstep::log1p>);
}
Array entr(const Operand& x) { return in_floats("special::entr", x, entropy); }
Array rel_entr(const Operand& p, const Operand& q) { return in_floats("special::rel_entr", p, q, relative_entropy); }
Array kl_div(const Operand& p, const Operand& q) { return rel_entr(p, q) - p + q; }

}  // namespace special
}  // namespace lockstep
