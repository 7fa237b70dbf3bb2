// References and samples of the elementwise rows: libm in extended precision, integers that wrap.
#include <cmath>

#include "rows/rows.h"

namespace lockstep {
namespace {

uint64_t bits_of(Real x) { return x < 0 ? static_cast<uint64_t>(static_cast<int64_t>(x)) : static_cast<uint64_t>(x); }

// The low bits of an integer as a value of `t`.
Real wrapped(DType t, uint64_t bits) {
  switch (t) {
    case boolean:
      return static_cast<Real>(bits & 1);
    case u8:
      return static_cast<Real>(static_cast<uint8_t>(bits));
    case u16:
      return static_cast<Real>(static_cast<uint16_t>(bits));
    case u64:
      return static_cast<Real>(bits);
    case i8:
      return static_cast<Real>(static_cast<int8_t>(bits));
    case i16:
      return static_cast<Real>(static_cast<int16_t>(bits));
    case i32:
      return static_cast<Real>(static_cast<int32_t>(bits));
    case u32:
      return static_cast<Real>(static_cast<uint32_t>(bits));
    default:
      return static_cast<Real>(static_cast<int64_t>(bits));
  }
}

bool nan_in(Real a, Real b) { return std::isnan(a) || std::isnan(b); }

Real sign_of(Real x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

Real log_sum_exp(Real a, Real b) {
  return a == b ? a + std::log(Real{2}) : (a > b ? a : b) + std::log1p(std::exp(-std::abs(a - b)));
}

// By bisection in double, then Newton's method.
Real erf_inverse(Real x) {
  if (!(std::abs(x) <= 1)) return std::nanl("");
  if (std::abs(x) == 1) return x * std::numeric_limits<Real>::infinity();
  double lo = -6, hi = 6;
  for (int i = 0; i < 20; ++i) {
    const double middle = (lo + hi) / 2;
    (std::erf(middle) < static_cast<double>(x) ? lo : hi) = middle;
  }
  Real y = x == 0 ? x : (lo + hi) / 2;
  for (int i = 0; i < 3; ++i) y -= (std::erf(y) - x) * std::sqrt(std::acos(Real{-1})) / 2 * std::exp(y * y);
  return y;
}

using Unary = Real (*)(Real);
using Binary = Real (*)(Real, Real);
using IntUnary = uint64_t (*)(uint64_t);
using IntBinary = Real (*)(DType, Real, Real);  // of integers

Reference unary(Unary f, IntUnary g = nullptr) {
  return [=](const RefArrays& in, const Attrs&, RefArrays& out) {
    const DType t = in[0].type.dtype;
    for (size_t i = 0; i < in[0].data.size(); ++i)
      out[0].data[i] = is_floating(t) || !g ? f(in[0].data[i]) : wrapped(t, g(bits_of(in[0].data[i])));
  };
}

Reference binary(Binary f, IntBinary g = nullptr) {
  return [=](const RefArrays& in, const Attrs&, RefArrays& out) {
    const DType t = in[0].type.dtype;
    for (size_t i = 0; i < in[0].data.size(); ++i) {
      const Real a = in[0].data[i], b = in[1].data[i];
      out[0].data[i] = is_floating(t) || !g ? f(a, b) : g(t, a, b);
    }
  };
}

int width(DType t) { return static_cast<int>(size_of(t)) * 8; }

Real int_div(DType t, Real a, Real b) {
  if (b == 0) return wrapped(t, ~uint64_t{0});
  if (b == -1) return wrapped(t, 0 - bits_of(a));
  return is_signed(t) ? static_cast<Real>(static_cast<int64_t>(a) / static_cast<int64_t>(b)) : std::trunc(a / b);
}
Real int_rem(DType t, Real a, Real b) {
  return b == 0 ? a : b == -1 ? 0 : wrapped(t, bits_of(a) - bits_of(b) * bits_of(int_div(t, a, b)));
}
Real int_pow(DType t, Real a, Real b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (std::fmod(b, Real{2}) == 0 ? 1 : -1) : 0;
  // Powers modulo 2^64 repeat: only the exponent's bits matter.
  uint64_t power = 1, base = bits_of(a);
  for (uint64_t n = bits_of(b); n; n >>= 1, base *= base)
    if (n & 1) power *= base;
  return wrapped(t, power);
}
Real int_shift_left(DType t, Real a, Real b) {
  return b < 0 || b >= width(t) ? 0 : wrapped(t, bits_of(a) << bits_of(b));
}
Real int_shift_right(DType t, Real a, Real b) {
  if (b < 0 || b >= width(t)) return a < 0 ? -1 : 0;
  return std::floor(std::ldexp(a, -static_cast<int>(b)));
}

const std::vector<DType> kFloats = {f32, f64, bf16, f16};
const std::vector<DType> kInts = {i32, i64, u8, u32, u64, i8, i16, u16};

std::vector<DType> operator+(std::vector<DType> a, const std::vector<DType>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Each dtype in a different shape, and the first also in edge-case shapes.
std::vector<Sample> samples(const std::vector<DType>& dtypes, std::vector<Domain> domains) {
  std::vector<Sample> out;
  auto add = [&](DType t, const Shape& shape, bool special) {
    Sample s;
    for (const Domain& d : domains) s.in.push_back({{t, shape}, special ? Domain{Domain::special} : d});
    s.smooth = !special;
    out.push_back(std::move(s));
  };
  const std::vector<Shape> shapes = {{2, 3}, {5}, {4, 1}, {2, 2, 3}, {1, 2, 3, 2}};
  for (size_t i = 0; i < dtypes.size(); ++i) {
    add(dtypes[i], shapes[i % shapes.size()], false);
    add(dtypes[i], {150}, true);
  }
  add(dtypes[0], {}, false);
  add(dtypes[0], {0, 3}, false);
  add(dtypes[0], {3, 7001}, false);
  return out;
}

// Adds signed numbers of full width, which overflow in almost every op.
std::vector<Sample> with_wide(std::vector<Sample> out, size_t operands) {
  for (DType t : {i32, u32})
    out.push_back({std::vector<SampleOperand>(operands, {{t, {40}}, {Domain::real, t == i32 ? -2e9 : 0, 2e9}}), {}});
  return out;
}

const Domain kPlain{Domain::real, -3, 3}, kPositive{Domain::real, 0.25, 4};

void add_unary(std::vector<Row>& out, const Op& op, Unary f, Domain domain = kPlain) {
  out.push_back({&op, unary(f), samples(kFloats, {domain}), &op != &sin_op && &op != &cos_op});
}

void add_numeric(std::vector<Row>& out, const Op& op, Binary f, IntBinary g, Domain a = kPlain, Domain b = kPlain) {
  out.push_back({&op, binary(f, g), with_wide(samples(kFloats + kInts, {a, b}), 2), true});
}

void add_compare(std::vector<Row>& out, const Op& op, Binary f) {
  std::vector<Sample> s = samples(kFloats + kInts + std::vector<DType>{boolean}, {kPlain, kPlain});
  for (DType t : {i32, f32}) s.push_back({{{{t, {30}}, {Domain::ties}}, {{t, {30}}, {Domain::ties}}}, {}});
  out.push_back({&op, binary(f), s, true});
}

// The value of `x` under another dtype.
Real cast_value(Real x, DType to) {
  if (to == boolean) return x != 0;
  if (is_floating(to)) return x;
  if (std::isnan(x)) return 0;
  const Real high = std::ldexp(Real{1}, width(to) - (is_signed(to) ? 1 : 0));
  const Real low = is_signed(to) ? -high : 0;
  return std::trunc(std::min(std::max(x, low), high - 1));
}

void add_cast(std::vector<Row>& out) {
  Row row{&cast_op,
          [](const RefArrays& in, const Attrs& attrs, RefArrays& y) {
            const DType to = attrs.get<DType>("dtype");
            for (size_t i = 0; i < y[0].data.size(); ++i) {
              const Real x = in[0].data[i];
              const bool wraps = !is_floating(in[0].type.dtype) && is_integer(to);
              y[0].data[i] = wraps ? wrapped(to, bits_of(x)) : cast_value(x, to);
            }
          },
          {},
          true};
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      row.samples.push_back({{{{from, {2, 3}}, {Domain::real, -100, 100}}}, {{"dtype", to}}});
      row.samples.push_back({{{{from, {40}}, {Domain::special}}}, {{"dtype", to}}, false});
    }
  row.samples.push_back({{{{f64, {50}}, {Domain::real, -1e10, 1e10}}}, {{"dtype", i32}}});
  row.samples.push_back({{{{f32, {}}}}, {{"dtype", f16}}});
  row.samples.push_back({{{{f32, {0}}}}, {{"dtype", i32}}});
  row.samples.push_back({{{{f32, {4, 6}}}}, {{"dtype", f64}}});
  out.push_back(std::move(row));
}

void add_bitcast(std::vector<Row>& out) {
  Row row{&bitcast_op,
          [](const RefArrays& in, const Attrs&, RefArrays& y) {
            HostArray bytes = from_reference(in[0]);
            bytes.type = y[0].type;
            y[0] = to_reference(bytes);
          },
          {},
          true};
  auto add = [&](DType from, DType to, const Shape& shape, Domain domain = {}) {
    row.samples.push_back({{{{from, shape}, domain}}, {{"dtype", to}}, false});
  };
  add(f32, i32, {2, 3});
  add(f32, u32, {17}, {Domain::special});
  add(i32, f32, {4}, {Domain::real, 0, 2e9});
  add(u32, i32, {3, 1, 2}, {Domain::special});
  add(f64, i64, {5});
  add(f32, f32, {});
  add(bf16, bf16, {3});
  add(i32, u32, {0, 2});
  add(f32, i32, {4, 6});
  out.push_back(std::move(row));
}

void add_select(std::vector<Row>& out) {
  Row row{&select_op,
          [](const RefArrays& in, const Attrs&, RefArrays& y) {
            for (size_t i = 0; i < y[0].data.size(); ++i)
              y[0].data[i] = in[0].data[i] != 0 ? in[1].data[i] : in[2].data[i];
          },
          {},
          true};
  for (DType t : kAllDTypes) row.samples.push_back({{{{boolean, {3, 4}}}, {{t, {3, 4}}}, {{t, {3, 4}}}}, {}});
  for (const Shape& s : {Shape{}, Shape{0}, Shape{2, 1, 3, 2}, Shape{20000}})
    row.samples.push_back({{{{boolean, s}}, {{f32, s}}, {{f32, s}}}, {}});
  out.push_back(std::move(row));
}

Real sigmoid_of(Real x) { return 1 / (1 + std::exp(-x)); }
const Real kGeluRate = 2 * std::sqrt(2 / std::acos(Real{-1}));
Real gelu_of(Real x) { return x * sigmoid_of(kGeluRate * (x + Real{0.044715L} * x * x * x)); }
// The limits, where the formulas of the slopes are undefined.
template <Real (*f)(Real)>
Real with_limits(Real x) {
  return std::isinf(x) ? (x > 0 ? 1 : 0) : f(x);
}
Real gelu_slope_of(Real x) {
  const Real s = sigmoid_of(kGeluRate * (x + Real{0.044715L} * x * x * x));
  return s + x * s * (1 - s) * kGeluRate * (1 + 3 * Real{0.044715L} * x * x);
}
Real normal_of(Real x) { return (1 + std::erf(x / std::sqrt(Real{2}))) / 2; }
Real gelu_exact_of(Real x) { return x * normal_of(x); }
Real gelu_exact_slope_of(Real x) {
  return normal_of(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real{-1}));
}
Real silu_of(Real x) { return x * sigmoid_of(x); }
Real silu_slope_of(Real x) { return sigmoid_of(x) * (1 + x * (1 - sigmoid_of(x))); }

void add_activations(std::vector<Row>& out) {
  add_unary(out, gelu_op, gelu_of);
  add_unary(out, silu_op, silu_of);
  // 1 + erf and the slopes cancel near their zeros.
  const auto add = [&](const Op& op, Unary f) { out.push_back({&op, unary(f), samples(kFloats, {kPlain}), false}); };
  add(gelu_exact_op, gelu_exact_of);
  add(gelu_slope_op, with_limits<gelu_slope_of>);
  add(gelu_exact_slope_op, with_limits<gelu_exact_slope_of>);
  add(silu_slope_op, with_limits<silu_slope_of>);
}

void add_float_functions(std::vector<Row>& out) {
  add_unary(out, floor_op, [](Real x) { return std::floor(x); });
  add_unary(out, ceil_op, [](Real x) { return std::ceil(x); });
  add_unary(out, round_op, [](Real x) { return std::nearbyint(x); });
  add_unary(out, exp_op, [](Real x) { return std::exp(x); });
  add_unary(
      out, log_op, [](Real x) { return std::log(x); }, kPositive);
  add_unary(out, log1p_op, [](Real x) { return std::log1p(x); }, {Domain::real, -0.9, 3});
  add_unary(out, expm1_op, [](Real x) { return std::expm1(x); });
  add_unary(out, tanh_op, [](Real x) { return std::tanh(x); });
  add_unary(out, logistic_op, sigmoid_of);
  add_unary(out, softplus_op, [](Real x) { return log_sum_exp(x, 0); });
  add_unary(
      out, sqrt_op, [](Real x) { return std::sqrt(x); }, kPositive);
  add_unary(
      out, rsqrt_op, [](Real x) { return 1 / std::sqrt(x); }, kPositive);
  add_unary(out, erf_op, [](Real x) { return std::erf(x); });
  add_activations(out);
  add_unary(out, erf_inv_op, erf_inverse, {Domain::real, -0.97, 0.97});
  add_unary(out, sin_op, [](Real x) { return std::sin(x); }, {Domain::real, -10, 10});
  add_unary(out, cos_op, [](Real x) { return std::cos(x); }, {Domain::real, -10, 10});

  for (Row& row : out)
    if (row.op == &sin_op || row.op == &cos_op)
      for (const auto& [t, far] : {std::pair(f32, 3e38), {f32, 1e12}, {bf16, 3e38}, {f16, 65504.0}, {f64, 1e300}})
        row.samples.push_back({{{{t, {40}}, {Domain::real, -far, far}}}, {}, false});
}

// Inverse, hyperbolic and related functions.
void add_elementary(std::vector<Row>& out) {
  const Domain inside{Domain::real, -0.9, 0.9};
  add_unary(
      out, log2_op, [](Real x) { return std::log2(x); }, kPositive);
  add_unary(
      out, log10_op, [](Real x) { return std::log10(x); }, kPositive);
  add_unary(out, tan_op, [](Real x) { return std::tan(x); }, {Domain::real, -1.3, 1.3});
  add_unary(
      out, asin_op, [](Real x) { return std::asin(x); }, inside);
  add_unary(
      out, acos_op, [](Real x) { return std::acos(x); }, inside);
  add_unary(out, atan_op, [](Real x) { return std::atan(x); });
  add_unary(out, sinh_op, [](Real x) { return std::sinh(x); });
  add_unary(out, cosh_op, [](Real x) { return std::cosh(x); });
  add_unary(out, asinh_op, [](Real x) { return std::asinh(x); });
  add_unary(out, acosh_op, [](Real x) { return std::acosh(x); }, {Domain::real, 1.5, 4});
  add_unary(
      out, atanh_op, [](Real x) { return std::atanh(x); }, inside);
  add_unary(
      out, cbrt_op, [](Real x) { return std::cbrt(x); }, kPositive);
  add_unary(out, erfc_op, [](Real x) { return std::erfc(x); });
  out.push_back({&atan2_op, binary([](Real a, Real b) { return std::atan2(a, b); }),
                 samples(kFloats, {kPlain, kPositive}), true});
  out.push_back({&hypot_op, binary([](Real a, Real b) { return std::hypot(a, b); }),
                 samples(kFloats, {kPositive, kPositive}), true});
}

Real digamma_of(Real x) {
  const Real pi = std::acos(Real{-1});
  if (x == 0) return -std::numeric_limits<Real>::infinity();
  if (x <= 0) return x == std::floor(x) ? std::nanl("") : digamma_of(1 - x) - pi / std::tan(pi * (x - std::round(x)));
  Real sum = 0;
  for (; x < 40; x += 1) sum -= 1 / x;
  const Real z = 1 / (x * x);
  return sum + std::log(x) - 1 / (2 * x) - z * (1 / Real{12} - z * (1 / Real{120} - z * (1 / Real{252} - z / 240)));
}

// A sum of 40 terms, then the formula of Euler and Maclaurin.
Real zeta_of(Real s, Real q) {
  Real sum = 0;
  for (int i = 0; i < 40; ++i) sum += std::pow(q + i, -s);
  const Real a = q + 40, power = std::pow(a, -s);
  return sum + power * (a / (s - 1) + Real{0.5} + s / (12 * a) - s * (s + 1) * (s + 2) / (720 * a * a * a));
}

Real igamma_of(Real a, Real x) {
  Real term = 1 / a, sum = term;
  for (int n = 1; n < 200; ++n) sum += term *= x / (a + n);
  return sum * std::exp(a * std::log(x) - x - std::lgamma(a));
}

// e^-|x| times the modified Bessel function of this order.
Real bessel_of(int order, Real x) {
  const Real a = std::abs(x), sign = order == 1 && x < 0 ? -1 : 1;
  if (std::isinf(x)) return sign * 0;
  Real term = order == 0 ? 1 : a / 2, sum = 0;
  for (int k = 1; k < 400; ++k) {
    sum += term;
    term *= a * a / 4 / (k * Real(k + order));
  }
  return sign * sum * std::exp(-a);
}

// By bisection: the distribution function increases.
Real normal_quantile(Real p) {
  if (!(p >= 0 && p <= 1)) return std::nanl("");
  if (p == 0 || p == 1) return p == 0 ? -std::numeric_limits<Real>::infinity() : std::numeric_limits<Real>::infinity();
  Real lo = -40, hi = 40;
  for (int i = 0; i < 80; ++i) {
    const Real middle = (lo + hi) / 2;
    (std::erfc(-middle / std::sqrt(Real{2})) / 2 < p ? lo : hi) = middle;
  }
  return (lo + hi) / 2;
}

void add_special_functions(std::vector<Row>& out) {
  const auto add = [&](const Op& op, Unary f, Domain domain) {
    out.push_back({&op, unary(f), samples(kFloats, {domain}), false});
  };
  add(
      lgamma_op, [](Real x) { return std::lgamma(x); }, kPositive);
  add(digamma_op, digamma_of, kPositive);
  add(ndtri_op, normal_quantile, {Domain::real, 0.05, 0.95});
  add(bessel_i0e_op, [](Real x) { return bessel_of(0, x); }, {Domain::real, -20, 20});
  add(bessel_i1e_op, [](Real x) { return bessel_of(1, x); }, {Domain::real, -20, 20});
  // The first operand has no gradient.
  const auto add_two = [&](const Op& op, Binary f, Domain a, Domain b) {
    Row row{&op, binary(f), {}, false};
    for (DType t : kFloats) row.samples.push_back({{{{t, {2, 3}}, a, false}, {{t, {2, 3}}, b}}, {}});
    for (const Shape& s : {Shape{}, Shape{0, 3}, Shape{12, 4}, Shape{3, 700}})
      row.samples.push_back({{{{f32, s}, a, false}, {{f32, s}, b}}, {}});
    out.push_back(std::move(row));
  };
  const Domain parameter{Domain::real, 0.5, 4};
  add_two(zeta_op, zeta_of, {Domain::real, 2, 5}, parameter);
  add_two(igamma_op, igamma_of, parameter, parameter);
  add_two(
      igammac_op, [](Real a, Real x) { return 1 - igamma_of(a, x); }, parameter, parameter);
}

void add_unary_arithmetic(std::vector<Row>& out) {
  auto numeric = with_wide(samples(kFloats + kInts, {kPlain}), 1);
  out.push_back({&neg_op, unary([](Real x) { return -x; }, [](uint64_t x) { return 0 - x; }), numeric, true});
  out.push_back({&abs_op,
                 [](const RefArrays& in, const Attrs&, RefArrays& y) {
                   const DType t = in[0].type.dtype;
                   for (size_t i = 0; i < y[0].data.size(); ++i) {
                     const Real x = in[0].data[i];
                     y[0].data[i] = is_floating(t) ? std::abs(x) : x < 0 ? wrapped(t, 0 - bits_of(x)) : x;
                   }
                 },
                 numeric, true});
  out.push_back({&sign_op, unary(sign_of), numeric, true});
  out.push_back({&bit_not_op, unary(nullptr, [](uint64_t x) { return ~x; }),
                 samples(kInts + std::vector<DType>{boolean}, {kPlain}), true});
  out.push_back(
      {&is_finite_op, unary([](Real x) -> Real { return std::isfinite(x); }), samples(kFloats, {kPlain}), true});
}

void add_binary_arithmetic(std::vector<Row>& out) {
  add_numeric(
      out, add_op, [](Real a, Real b) { return a + b; },
      [](DType t, Real a, Real b) { return wrapped(t, bits_of(a) + bits_of(b)); });
  add_numeric(
      out, sub_op, [](Real a, Real b) { return a - b; },
      [](DType t, Real a, Real b) { return wrapped(t, bits_of(a) - bits_of(b)); });
  add_numeric(
      out, mul_op, [](Real a, Real b) { return a * b; },
      [](DType t, Real a, Real b) { return wrapped(t, bits_of(a) * bits_of(b)); });
  add_numeric(
      out, div_op, [](Real a, Real b) { return a / b; }, int_div, kPlain, kPositive);
  add_numeric(
      out, rem_op, [](Real a, Real b) { return std::fmod(a, b); }, int_rem, {Domain::real, -9, 9}, kPositive);
  add_numeric(
      out, pow_op, [](Real a, Real b) { return std::pow(a, b); }, int_pow, kPositive);
  add_numeric(
      out, maximum_op, [](Real a, Real b) { return nan_in(a, b) ? std::nanl("") : std::max(a, b); },
      [](DType, Real a, Real b) { return std::max(a, b); });
  add_numeric(
      out, minimum_op, [](Real a, Real b) { return nan_in(a, b) ? std::nanl("") : std::min(a, b); },
      [](DType, Real a, Real b) { return std::min(a, b); });
  // Not relative to each element: two terms of opposite signs may cancel.
  out.push_back({&logaddexp_op, binary(log_sum_exp), samples(kFloats, {kPlain, kPlain})});
  for (DType t : {f32, bf16})
    out.back().samples.push_back({{{{t, {30}}, {Domain::ties}}, {{t, {30}}, {Domain::ties}}}, {}});
  for (const Op* op : {&maximum_op, &minimum_op}) {
    for (Row& row : out)
      if (row.op == op) row.samples.push_back({{{{boolean, {9}}}, {{boolean, {9}}}}, {}});
  }
}

void add_bit_operations(std::vector<Row>& out) {
  const std::vector<Sample> integral = samples(kInts + std::vector<DType>{boolean}, {kPlain, kPlain});
  out.push_back({&bit_and_op,
                 binary(nullptr, [](DType t, Real a, Real b) { return wrapped(t, bits_of(a) & bits_of(b)); }),
                 integral});
  out.push_back({&bit_or_op,
                 binary(nullptr, [](DType t, Real a, Real b) { return wrapped(t, bits_of(a) | bits_of(b)); }),
                 integral});
  out.push_back({&bit_xor_op,
                 binary(nullptr, [](DType t, Real a, Real b) { return wrapped(t, bits_of(a) ^ bits_of(b)); }),
                 integral});
  const std::vector<Sample> shifts = samples(kInts, {{Domain::real, -1e9, 1e9}, {Domain::real, -2, 40}});
  out.push_back({&shift_left_op, binary(nullptr, int_shift_left), shifts});
  out.push_back({&shift_right_op, binary(nullptr, int_shift_right), shifts});
}

void add_comparisons(std::vector<Row>& out) {
  add_compare(out, eq_op, [](Real a, Real b) -> Real { return a == b; });
  add_compare(out, ne_op, [](Real a, Real b) -> Real { return a != b; });
  add_compare(out, lt_op, [](Real a, Real b) -> Real { return a < b; });
  add_compare(out, le_op, [](Real a, Real b) -> Real { return a <= b; });
  add_compare(out, gt_op, [](Real a, Real b) -> Real { return a > b; });
  add_compare(out, ge_op, [](Real a, Real b) -> Real { return a >= b; });
}

}  // namespace

void add_elementwise_rows(std::vector<Row>& out) {
  add_float_functions(out);
  add_elementary(out);
  add_special_functions(out);
  add_unary_arithmetic(out);
  add_binary_arithmetic(out);
  add_bit_operations(out);
  add_comparisons(out);
  add_select(out);
  add_cast(out);
  add_bitcast(out);
}

}  // namespace lockstep
