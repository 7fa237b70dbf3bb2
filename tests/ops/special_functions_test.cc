// The inverse, hyperbolic and special functions against the C library in extended precision, over all exponents and for
// every instruction set, and known values that do not depend on it.
#include <bit>
#include <cmath>
#include <limits>

#include "ops/evaluate.h"
#include "ops/loops/loops.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

using Exact = long double (*)(long double);
constexpr double kEndless = std::numeric_limits<double>::infinity();
constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

double ulps_between(float got, long double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kEndless;
  const auto rounded = static_cast<float>(exact);
  if (got == rounded) return std::signbit(got) == std::signbit(exact) ? 0 : kEndless;
  if (!std::isfinite(got)) return std::abs(exact) > std::numeric_limits<float>::max() ? 0 : kEndless;
  const int exponent = std::max(std::ilogb(exact), -126);
  return static_cast<double>(std::abs(got - exact) / std::ldexp(1.0L, exponent - 23));
}

std::vector<float> dense_floats() {
  std::vector<float> all;
  for (uint64_t u = 0; u <= 0xffffffffu; u += 30011) all.push_back(std::bit_cast<float>(static_cast<uint32_t>(u)));
  for (double x : {0.0, 0.5, 1.0, 2.0, 1e-45, 1.17549435e-38, 3.4028234e38, 0x1p-10, kEndless, kUndefined})
    for (double s : {x, -x}) all.push_back(static_cast<float>(s));
  // The steep and the cancelling ranges.
  for (double x = -12; x < 12; x += 0.0037) all.push_back(static_cast<float>(x));
  return all;
}

void expect_exact(LoopId id, Exact exact, double most) {
  static const std::vector<float> x = dense_floats();
  std::vector<float> first(x.size()), y(x.size());
  for (const Loops* table : all_loops()) {
    const void* in[] = {x.data()};
    table->map[static_cast<int>(id)][register_index(f32)](y.data(), in, static_cast<int64_t>(x.size()));
    if (table == all_loops()[0]) first = y;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(ulps_between(y[i], exact(x[i])), most) << "at " << x[i] << " got " << y[i];
      ASSERT_TRUE(std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(first[i]) || std::isnan(y[i])) << x[i];
    }
  }
}

#define EXPECT_EXACT(name, most) \
  expect_exact(                  \
      LoopId::name, [](long double x) -> long double { return std::name(x); }, most)

TEST(SpecialFloats, InverseAndHyperbolicFunctionsAreAccurate) {
  EXPECT_EXACT(log2, 0.6);
  EXPECT_EXACT(log10, 0.6);
  EXPECT_EXACT(tan, 4);
  EXPECT_EXACT(asin, 0.6);
  EXPECT_EXACT(acos, 0.6);
  EXPECT_EXACT(atan, 0.6);
  EXPECT_EXACT(sinh, 0.6);
  EXPECT_EXACT(cosh, 0.6);
  EXPECT_EXACT(asinh, 0.6);
  EXPECT_EXACT(acosh, 0.6);
  EXPECT_EXACT(atanh, 0.6);
  EXPECT_EXACT(cbrt, 0.6);
  EXPECT_EXACT(erfc, 0.6);
  EXPECT_EXACT(lgamma, 0.6);
}

TEST(SpecialFloats, FunctionsOfTwoNumbersAreAccurate) {
  std::vector<double> a, b;
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    a.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    b.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  for (double x : {0.0, -0.0, 1.0, -1.0, kEndless, -kEndless, kUndefined})
    for (double y : {0.0, -0.0, 1.0, -1.0, kEndless, -kEndless, kUndefined}) a.push_back(x), b.push_back(y);
  const Type type{f32, {static_cast<int64_t>(a.size())}};
  const HostArray first(type, a), second(type, b);
  const HostArray angle = run_op(atan2_op, {first, second}, {})[0], length = run_op(hypot_op, {first, second}, {})[0];
  for (int64_t i = 0; i < first.size(); ++i) {
    const long double x = first.get(i), y = second.get(i);
    ASSERT_LE(ulps_between(static_cast<float>(angle.get(i)), std::atan2(x, y)), 0.6)
        << first.get(i) << " " << second.get(i);
    ASSERT_LE(ulps_between(static_cast<float>(length.get(i)), std::hypot(x, y)), 0.6)
        << first.get(i) << " " << second.get(i);
  }
}

// f64 results at these points.
std::vector<double> in_doubles(const Op& op, const std::vector<std::vector<double>>& operands) {
  HostArrays in;
  for (const auto& x : operands) in.emplace_back(Type{f64, {static_cast<int64_t>(x.size())}}, x);
  return run_op(op, in, {})[0].values();
}

void expect_values(const Op& op, const std::vector<std::vector<double>>& operands, const std::vector<double>& wanted,
                   double tolerance = 4e-15) {
  const std::vector<double> got = in_doubles(op, operands);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(wanted[i]) || std::isinf(wanted[i]))
      EXPECT_TRUE(got[i] == wanted[i] || (std::isnan(wanted[i]) && std::isnan(got[i]))) << op.name << " " << i;
    else
      EXPECT_NEAR(got[i], wanted[i], tolerance * std::max(1.0, std::abs(wanted[i]))) << op.name << " " << i;
  }
}

// Values of Abramowitz and Stegun, and of closed forms.
TEST(SpecialDoubles, KnownValues) {
  const double pi = std::acos(-1.0), euler = 0.57721566490153286061;
  expect_values(digamma_op, {{1, 0.5, 2, 10, -0.5, -1.5, 0, -3, kEndless, -kEndless, kUndefined}},
                {-euler, -euler - 2 * std::log(2.0), 1 - euler, 2.2517525890667211, 0.03648997397857652,
                 0.70315664064524319, -kEndless, kUndefined, kEndless, kUndefined, kUndefined});
  expect_values(
      zeta_op,
      {{2, 4, 3, 2, 2, 1, 0.5, 2, 2.5, 2, kUndefined, 3}, {1, 1, 1, 0.5, -1.5, 2, 2, -3, -0.5, kEndless, 1, 1e6}},
      {pi * pi / 6, std::pow(pi, 4) / 90, 1.2020569031595942854, pi * pi / 2, pi * pi / 2 + 4 + 1 / 2.25, kEndless,
       kUndefined, kEndless, kUndefined, 0, kUndefined, 5.000005e-13});
  expect_values(
      igamma_op,
      {{1, 0.5, 3, 100, 2, 0, 0, 2, kEndless, 1, -1, 2}, {2, 0.3, 1, 90, 0, 1, 0, kEndless, 1, kEndless, 1, -1}},
      {1 - std::exp(-2.0), std::erf(std::sqrt(0.3)), 1 - 2.5 * std::exp(-1.0), 0.15822098918643016, 0, 1, kUndefined, 1,
       0, 1, kUndefined, kUndefined},
      1e-13);
  expect_values(igammac_op, {{1, 0.5, 3}, {30, 20, 40}},
                {std::exp(-30.0), std::erfc(std::sqrt(20.0)), 841 * std::exp(-40.0)}, 1e-22);
  expect_values(
      ndtri_op, {{0.975, 0.5, 1e-10, 1 - 1e-10, 0, 1, -0.1, kUndefined}},
      {1.959963984540054, 0, -6.361340902404056, 6.361340889697422, -kEndless, kEndless, kUndefined, kUndefined}, 1e-9);
  expect_values(bessel_i0e_op, {{0, 1, 8, 8.0001, 100, kEndless, kUndefined}},
                {1, 0.46575960759364043, 0.14343178185685030, 0.14343085293704762, 0.03994437929909668, 0, kUndefined},
                1e-12);
  expect_values(bessel_i1e_op, {{0, 1, -1, 100, -kEndless}},
                {0, 0.20791041534970845, -0.20791041534970845, 0.03974415302513025, 0}, 1e-13);
  expect_values(lgamma_op, {{1, 0.5, 10, 0, -1, -0.5}},
                {0, 0.5 * std::log(pi), std::log(362880.0), kEndless, kEndless, std::log(2 * std::sqrt(pi))});
}

TEST(SpecialDoubles, BesselFunctionsMatchTheirSeries) {
  for (double x = -40; x < 40; x += 0.173) {
    long double first = 1, second = static_cast<long double>(x) / 2, i0 = 0, i1 = 0;
    const long double quarter = static_cast<long double>(x) * x / 4;
    for (int k = 1; k < 300; ++k) {
      i0 += first;
      i1 += second;
      first *= quarter / (static_cast<long double>(k) * k);
      second *= quarter / (static_cast<long double>(k) * (k + 1));
    }
    const long double scale = std::exp(-std::abs(static_cast<long double>(x)));
    EXPECT_NEAR(in_doubles(bessel_i0e_op, {{x}})[0], static_cast<double>(i0 * scale), 1e-15);
    EXPECT_NEAR(in_doubles(bessel_i1e_op, {{x}})[0], static_cast<double>(i1 * scale), 1e-15);
  }
}

}  // namespace
}  // namespace lockstep
