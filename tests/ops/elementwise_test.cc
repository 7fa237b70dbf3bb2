// Elementwise rows: accuracy of the float functions, exact rules of integers, conversions and
// special values, gradients, folds.
#include "ops/elementwise.h"

#include <bit>
#include <limits>
#include <map>

#include "ops/evaluate.h"
#include "ops/loops/loops.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

HostArray numbers(DType t, const std::vector<double>& values) {
  return HostArray({t, {static_cast<int64_t>(values.size())}}, values);
}
std::vector<double> apply(const Op& op, const HostArrays& in, const Attrs& attrs = {}) {
  return run_op(op, in, attrs)[0].values();
}

// ---- Accuracy

// Distance from the exact value in units of the last place of a float.
double ulps(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kInf;
  const auto rounded = static_cast<float>(exact);
  if (got == rounded) return std::signbit(got) == std::signbit(exact) ? 0 : kInf;
  if (!std::isfinite(got)) return std::abs(exact) > std::numeric_limits<float>::max() ? 0 : kInf;
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(got - exact) / std::ldexp(1.0, exponent - 23);
}

// Every `stride`-th float with |x| below `limit` (infinity: also infinities and NaN), and special values.
std::vector<float> all_floats(double limit, uint32_t stride = 1009) {
  std::vector<float> all;
  for (uint64_t u = 0; u <= 0xffffffffu; u += stride) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(u));
    if (limit == kInf || std::abs(x) < limit) all.push_back(x);
  }
  for (double x : {0.0, 1.0, 0.5, 2.0, 1e-45, 1e-38, 88.7, 88.8, 103.9, 104.1})
    for (double s : {x, -x}) all.push_back(static_cast<float>(s));
  if (limit == kInf)
    for (double x : {kInf, -kInf, kNan, 3.4028234e38}) all.push_back(static_cast<float>(x));
  return all;
}

Loop float_loop(const Loops& table, LoopId id) { return table.map[static_cast<int>(id)][register_index(f32)]; }

void expect_accurate(LoopId id, double (*exact)(double), double most, double limit = kInf) {
  const std::vector<float> x = all_floats(limit);
  std::vector<float> first(x.size()), y(x.size());
  for (const Loops* table : all_loops()) {
    const void* in[] = {x.data()};
    float_loop(*table, id)(y.data(), in, static_cast<int64_t>(x.size()));
    double worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], exact(x[i]));
      if (error > worst) worst = error, where = i;
    }
    EXPECT_LE(worst, most) << "at " << x[where] << " got " << y[where] << ", wanted " << exact(x[where]);
    ::testing::Test::RecordProperty("max_ulp", std::to_string(worst));
    // Every instruction set gives the same bits.
    if (table == all_loops()[0]) first = y;
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(std::bit_cast<uint32_t>(y[i]) == std::bit_cast<uint32_t>(first[i]) || std::isnan(y[i])) << x[i];
  }
}

TEST(FloatFunctions, ExpIsAccurate) { expect_accurate(LoopId::exp, std::exp, 1.1); }
TEST(FloatFunctions, LogIsAccurate) { expect_accurate(LoopId::log, std::log, 1.0); }
TEST(FloatFunctions, Log1pIsAccurate) { expect_accurate(LoopId::log1p, std::log1p, 1.0); }
TEST(FloatFunctions, Expm1IsAccurate) { expect_accurate(LoopId::expm1, std::expm1, 2.0); }
TEST(FloatFunctions, TanhIsAccurate) { expect_accurate(LoopId::tanh, std::tanh, 3.0); }
TEST(FloatFunctions, ErfIsAccurate) { expect_accurate(LoopId::erf, std::erf, 2.0); }
TEST(FloatFunctions, SinIsAccurate) { expect_accurate(LoopId::sin, std::sin, 2.0); }
TEST(FloatFunctions, CosIsAccurate) { expect_accurate(LoopId::cos, std::cos, 2.0); }
TEST(FloatFunctions, SqrtIsAccurate) { expect_accurate(LoopId::sqrt, std::sqrt, 0.5); }
TEST(FloatFunctions, RoundIsAccurate) { expect_accurate(LoopId::round, std::nearbyint, 0); }
TEST(FloatFunctions, FloorIsAccurate) { expect_accurate(LoopId::floor, std::floor, 0); }
TEST(FloatFunctions, LogisticIsAccurate) {
  expect_accurate(
      LoopId::logistic, [](double x) { return 1 / (1 + std::exp(-x)); }, 3.0);
}

TEST(FloatFunctions, SoftplusIsAccurate) {
  expect_accurate(
      LoopId::softplus, [](double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::abs(x))); }, 2.0);
}

TEST(FloatFunctions, LogAddExpIsAccurate) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> gap(-110, 110), base(-300, 300);
  std::vector<double> x, y;
  for (int i = 0; i < 100000; ++i) {
    x.push_back(i % 3 == 0 ? 0 : base(random));
    y.push_back(x.back() + gap(random) * (i % 2 == 0 ? 1 : 0.01));
  }
  const HostArray a = numbers(f32, x), b = numbers(f32, y), got = run_op(logaddexp_op, {a, b}, {})[0];
  for (int64_t i = 0; i < got.size(); ++i) {
    const double larger = std::max(a.get(i), b.get(i)),
                 exact = larger + std::log1p(std::exp(-std::abs(a.get(i) - b.get(i))));
    // A sum of terms of opposite signs has the error of its terms.
    const double unit = std::max(std::abs(exact), std::abs(larger)) * 0x1p-23;
    ASSERT_LE(std::abs(got.get(i) - exact), 2 * unit + 1e-45) << "log(e^" << a.get(i) << " + e^" << b.get(i) << ")";
  }
  for (DType t : {f32, f64, bf16, f16}) {
    const std::vector<double> z = apply(logaddexp_op, {numbers(t, {kInf, -kInf, -kInf, kInf, 3, kNan, -kInf}),
                                                       numbers(t, {kInf, -kInf, kInf, 3, -kInf, kInf, kNan})});
    EXPECT_EQ(std::vector<double>(z.begin(), z.begin() + 5), (std::vector<double>{kInf, -kInf, kInf, kInf, 3}));
    EXPECT_TRUE(std::isnan(z[5]) && std::isnan(z[6]));
  }
}

// Angles of every exponent: those next to multiples of pi/2 lose the most digits. The float nearest to one is
// 16367173 * 2^72, at a distance of 1.6e-9.
TEST(FloatFunctions, SinAndCosOfHugeAnglesAreAccurate) {
  std::vector<double> x{1e12, -1e18, 3.4028234e38, std::ldexp(16367173, 72), -std::ldexp(16367173, 72)};
  std::mt19937_64 random(11);
  for (int e = -10; e < 128; ++e) {
    for (int i = 0; i < 200; ++i) x.push_back(std::ldexp(std::uniform_real_distribution<double>(-2, 2)(random), e));
    // The floats next to multiples of pi/2.
    for (int i = 0; i < 50; ++i) {
      const double n = std::floor(std::ldexp(std::uniform_real_distribution<double>(1, 2)(random), e));
      x.push_back(n * 1.5707963267948966);
    }
  }
  const auto check = [&](const Op& op, double (*exact)(double)) {
    const HostArray in = numbers(f32, x), got = run_op(op, {in}, {})[0];
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_LE(ulps(static_cast<float>(got.get(i)), exact(in.get(i))), 2.0) << op.name << " " << in.get(i);
    }
    for (DType t : {f32, f64, bf16, f16})
      for (double y : apply(op, {numbers(t, {kInf, -kInf, kNan})})) EXPECT_TRUE(std::isnan(y));
  };
  check(sin_op, std::sin);
  check(cos_op, std::cos);
  // Known values, which do not depend on the C library.
  EXPECT_NEAR(apply(sin_op, {numbers(f64, {1e22})})[0], -0.8522008497671888, 1e-15);
  EXPECT_NEAR(apply(sin_op, {numbers(f32, {std::ldexp(16367173, 72)})})[0], 1, 1e-7);
  EXPECT_NEAR(apply(cos_op, {numbers(f32, {std::ldexp(16367173, 72)})})[0], -1.6147697982476211e-9, 1e-16);
}

TEST(FloatFunctions, PowIsAccurate) {
  std::vector<double> x, y;
  const std::vector<double> special{0.0,  -0.0,       1.0,       -1.0,  2.0,  -2.0,  3.0, 0.5,
                                    -0.5, 16777216.0, 8388609.0, 1e-45, kInf, -kInf, kNan};
  for (double a : special)
    for (double b : special) x.push_back(a), y.push_back(b);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> base(-20, 20), exponent(-30, 30);
  for (int i = 0; i < 200000; ++i) {
    x.push_back(i % 8 == 0 ? base(random) : std::exp2(base(random)));
    y.push_back(i % 8 == 0 ? std::floor(exponent(random)) : exponent(random));
  }
  const HostArray a = numbers(f32, x), b = numbers(f32, y), got = run_op(pow_op, {a, b}, {})[0];
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_LE(ulps(static_cast<float>(got.get(i)), std::pow(a.get(i), b.get(i))), 0.6) << a.get(i) << " ^ " << b.get(i);
}

TEST(FloatFunctions, ErfInvIsAccurate) {
  std::vector<double> x, exact;
  for (double y = -3.7; y < 3.7; y += 1e-3) {
    const auto rounded = static_cast<float>(std::erf(y));
    x.push_back(rounded);
  }
  const std::vector<double> single = apply(erf_inv_op, {numbers(f32, x)}), twice = apply(erf_inv_op, {numbers(f64, x)});
  for (size_t i = 0; i < x.size(); ++i) {
    // Both ends of the identity in the tail, where 1 - |x| has the digits.
    if (std::abs(twice[i]) < 0.5)
      EXPECT_NEAR(std::erf(twice[i]), x[i], 4e-16);
    else
      EXPECT_NEAR(std::erfc(std::abs(twice[i])) / (1 - std::abs(x[i])), 1, 1e-14);
    EXPECT_NEAR(single[i], twice[i], 1e-5 * std::abs(twice[i]) + 1e-9);
  }
  EXPECT_EQ(apply(erf_inv_op, {numbers(f32, {1, -1, 0})}), (std::vector<double>{kInf, -kInf, 0}));
  EXPECT_TRUE(std::isnan(apply(erf_inv_op, {numbers(f32, {1.5})})[0]));
  EXPECT_NEAR(apply(erf_inv_op, {numbers(f64, {1 - 0x1p-53})})[0], 5.863584748755168, 1e-12);
}

// ---- Every dtype

// The exact function of each row on small integers or ordinary numbers.
struct Reference {
  double (*one)(double) = nullptr;
  double (*two)(double, double) = nullptr;
};
const std::map<std::string_view, Reference>& references() {
  static const std::map<std::string_view, Reference> all = {
      {"neg", {[](double x) { return -x; }}},
      {"abs", {[](double x) { return std::abs(x); }}},
      {"sign", {[](double x) { return x > 0   ? 1.0
                                      : x < 0 ? -1.0
                                              : x; }}},
      {"floor", {[](double x) { return std::floor(x); }}},
      {"ceil", {[](double x) { return std::ceil(x); }}},
      {"round", {[](double x) { return std::nearbyint(x); }}},
      {"exp", {[](double x) { return std::exp(x); }}},
      {"log", {[](double x) { return std::log(x); }}},
      {"log1p", {[](double x) { return std::log1p(x); }}},
      {"expm1", {[](double x) { return std::expm1(x); }}},
      {"tanh", {[](double x) { return std::tanh(x); }}},
      {"logistic", {[](double x) { return 1 / (1 + std::exp(-x)); }}},
      {"softplus", {[](double x) { return std::log1p(std::exp(x)); }}},
      {"sqrt", {[](double x) { return std::sqrt(x); }}},
      {"rsqrt", {[](double x) { return 1 / std::sqrt(x); }}},
      {"erf", {[](double x) { return std::erf(x); }}},
      {"sin", {[](double x) { return std::sin(x); }}},
      {"cos", {[](double x) { return std::cos(x); }}},
      {"is_finite", {[](double x) { return std::isfinite(x) ? 1.0 : 0.0; }}},
      {"add", {nullptr, [](double a, double b) { return a + b; }}},
      {"sub", {nullptr, [](double a, double b) { return a - b; }}},
      {"mul", {nullptr, [](double a, double b) { return a * b; }}},
      {"logaddexp", {nullptr, [](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }}},
      {"maximum", {nullptr, [](double a, double b) { return std::max(a, b); }}},
      {"minimum", {nullptr, [](double a, double b) { return std::min(a, b); }}},
      {"eq", {nullptr, [](double a, double b) { return a == b ? 1.0 : 0.0; }}},
      {"ne", {nullptr, [](double a, double b) { return a != b ? 1.0 : 0.0; }}},
      {"lt", {nullptr, [](double a, double b) { return a < b ? 1.0 : 0.0; }}},
      {"le", {nullptr, [](double a, double b) { return a <= b ? 1.0 : 0.0; }}},
      {"gt", {nullptr, [](double a, double b) { return a > b ? 1.0 : 0.0; }}},
      {"ge", {nullptr, [](double a, double b) { return a >= b ? 1.0 : 0.0; }}},
  };
  return all;
}

bool accepts(const Op& op, const std::vector<Type>& types) {
  try {
    infer_types(op, types, {});
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Elementwise, MatchesTheReferenceInEveryDType) {
  for (const Op* op : all_ops()) {
    const auto entry = references().find(op->name);
    if (entry == references().end()) continue;
    const auto& [one, two] = entry->second;
    for (DType t : kAllDTypes) {
      SCOPED_TRACE(fmt::format("{} {}", op->name, name(t)));
      const Type type{t, {37, 41}};
      HostArrays in{is_floating(t) ? normal_numbers(type) : small_integers(type)};
      if (two) in.push_back(is_floating(t) ? normal_numbers(type, 2) : small_integers(type, 2));
      if (!accepts(*op, std::vector<Type>(in.size(), type))) continue;
      const HostArray got = run_op(*op, in, {})[0];
      HostArray wanted(got.type);
      for (int64_t i = 0; i < got.size(); ++i) {
        const double exact = one ? one(in[0].get(i)) : two(in[0].get(i), in[1].get(i));
        wanted.set_wrapped(i, exact);
      }
      expect_equal(got, wanted, t == f64 ? 1e-15 : t == f32 ? 1e-6 : t == f16 ? 1e-3 : t == bf16 ? 8e-3 : 0);
    }
  }
}

TEST(Elementwise, HalfResultsAreTheFloatResultsRounded) {
  for (DType t : {bf16, f16}) {
    const HostArray a = normal_numbers({t, {1000}}), b = normal_numbers({t, {1000}}, 2);
    const HostArray got = run_op(div_op, {a, b}, {})[0];
    HostArray wanted(got.type);
    for (int64_t i = 0; i < got.size(); ++i) wanted.set(i, static_cast<float>(a.get(i)) / static_cast<float>(b.get(i)));
    expect_equal(got, wanted);
  }
}

// ---- Exact rules

TEST(Elementwise, NanPropagatesThroughMaximumAndMinimum) {
  for (DType t : {f32, f64, bf16, f16}) {
    const HostArrays in{numbers(t, {kNan, 1, kNan, kInf}), numbers(t, {1, kNan, kNan, -kInf})};
    for (const Op* op : {&maximum_op, &minimum_op})
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(apply(*op, in)[i]));
    EXPECT_EQ(apply(maximum_op, in)[3], kInf);
    EXPECT_EQ(apply(minimum_op, in)[3], -kInf);
  }
}

TEST(Elementwise, IntegersWrapAndNeverTrap) {
  constexpr double low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  const HostArrays in{numbers(i32, {low, high, 7, -7, 7, low, 5}), numbers(i32, {-1, 1, 0, 0, -2, low, 3})};
  EXPECT_EQ(apply(div_op, in), (std::vector<double>{low, high, -1, -1, -3, 1, 1}));
  EXPECT_EQ(apply(rem_op, in), (std::vector<double>{0, 0, 7, -7, 1, 0, 2}));
  EXPECT_EQ(apply(add_op, in), (std::vector<double>{high, low, 7, -7, 5, 0, 8}));
  EXPECT_EQ(apply(mul_op, in), (std::vector<double>{low, high, 0, 0, -14, 0, 15}));
  EXPECT_EQ(apply(neg_op, {in[0]})[0], low);
  EXPECT_EQ(apply(abs_op, {in[0]})[0], low);
  EXPECT_EQ(apply(pow_op, {numbers(i32, {2, -1, -1, 3, 1, 0, 2}), numbers(i32, {31, -3, -2, -1, -9, 0, 40})}),
            (std::vector<double>{low, -1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(apply(div_op, {numbers(u8, {9, 200}), numbers(u8, {0, 3})}), (std::vector<double>{255, 66}));
}

TEST(Elementwise, RemainderHasTheSignOfTheDividend) {
  EXPECT_EQ(apply(rem_op, {numbers(f32, {5.5, -5.5, 5.5}), numbers(f32, {2, 2, -2})}),
            (std::vector<double>{1.5, -1.5, 1.5}));
}

TEST(Elementwise, ShiftsByTheWidthOrMoreAreDefined) {
  const std::vector<double> by{0, 1, 31, 32, 1000};
  EXPECT_EQ(apply(shift_left_op, {numbers(i32, {3, 3, 3, 3, 3}), numbers(i32, by)}),
            (std::vector<double>{3, 6, -2147483648.0, 0, 0}));
  EXPECT_EQ(apply(shift_right_op, {numbers(i32, {-8, -8, -8, -8, -8}), numbers(i32, by)}),
            (std::vector<double>{-8, -4, -1, -1, -1}));
  EXPECT_EQ(apply(shift_right_op, {numbers(u32, {8, 8, 4294967295.0, 8, 8}), numbers(u32, by)}),
            (std::vector<double>{8, 4, 1, 0, 0}));
  EXPECT_EQ(apply(shift_right_op, {numbers(u8, {200, 200}), numbers(u8, {3, 8})}), (std::vector<double>{25, 0}));
}

TEST(Elementwise, BitOperationsOfBoolAreLogical) {
  const HostArrays in{numbers(boolean, {0, 0, 1, 1}), numbers(boolean, {0, 1, 0, 1})};
  EXPECT_EQ(apply(bit_and_op, in), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(apply(bit_or_op, in), (std::vector<double>{0, 1, 1, 1}));
  EXPECT_EQ(apply(bit_xor_op, in), (std::vector<double>{0, 1, 1, 0}));
  EXPECT_EQ(apply(bit_not_op, {in[0]}), (std::vector<double>{1, 1, 0, 0}));
  EXPECT_EQ(apply(bit_not_op, {numbers(u8, {0, 255, 1})}), (std::vector<double>{255, 0, 254}));
}

TEST(Cast, FloatsAreTruncatedAndClamped) {
  const std::vector<double> x{1.9, -1.9, 0.5, kNan, kInf, -kInf, 3e9, -3e9, 300, 1e30};
  const double low = -2147483648.0, high = 2147483647.0, high64 = 0x1p63;
  for (DType t : {f32, f64}) {
    const auto to = [&](DType out) { return apply(cast_op, {numbers(t, x)}, {{"dtype", out}}); };
    EXPECT_EQ(to(i32), (std::vector<double>{1, -1, 0, 0, high, low, high, low, 300, high}));
    EXPECT_EQ(to(u8), (std::vector<double>{1, 0, 0, 0, 255, 0, 255, 0, 255, 255}));
    EXPECT_EQ(to(u32), (std::vector<double>{1, 0, 0, 0, 4294967295.0, 0, 3e9, 0, 300, 4294967295.0}));
    EXPECT_EQ(to(i64), (std::vector<double>{1, -1, 0, 0, high64, -high64, 3e9, -3e9, 300, high64}));
    EXPECT_EQ(to(boolean), (std::vector<double>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
    EXPECT_EQ(to(i8), (std::vector<double>{1, -1, 0, 0, 127, -128, 127, -128, 127, 127}));
    EXPECT_EQ(to(i16), (std::vector<double>{1, -1, 0, 0, 32767, -32768, 32767, -32768, 300, 32767}));
    EXPECT_EQ(to(u16), (std::vector<double>{1, 0, 0, 0, 65535, 0, 65535, 0, 300, 65535}));
    EXPECT_EQ(to(u64), (std::vector<double>{1, 0, 0, 0, 0x1p64, 0, 3e9, 0, 300, 0x1p64}));
  }
}

TEST(Cast, BetweenAllDTypesKeepsSmallNumbers) {
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      SCOPED_TRACE(fmt::format("{} to {}", name(from), name(to)));
      const HostArray x = numbers(from, {0, 1, 1, 0, 1});
      EXPECT_EQ(apply(cast_op, {x}, {{"dtype", to}}), x.values());
    }
  EXPECT_EQ(apply(cast_op, {numbers(i32, {-1, 257, 4})}, {{"dtype", u8}}), (std::vector<double>{255, 1, 4}));
  EXPECT_EQ(apply(cast_op, {numbers(f32, {1.00390625, 65520})}, {{"dtype", bf16}}), (std::vector<double>{1, 65536}));
  EXPECT_EQ(apply(cast_op, {numbers(f32, {65519, 65520})}, {{"dtype", f16}}), (std::vector<double>{65504, kInf}));
}

TEST(Bitcast, KeepsTheBits) {
  EXPECT_EQ(apply(bitcast_op, {numbers(f32, {1, -0.0})}, {{"dtype", u32}}),
            (std::vector<double>{0x3f800000, 0x80000000}));
  EXPECT_EQ(apply(bitcast_op, {numbers(i64, {0x3ff0000000000000})}, {{"dtype", f64}}), (std::vector<double>{1}));
}

TEST(Elementwise, SupportsEmptyAndScalarArrays) {
  EXPECT_EQ(run_op(add_op, {HostArray({f32, {0, 3}}), HostArray({f32, {0, 3}})}, {})[0].size(), 0);
  EXPECT_EQ(run_op(exp_op, {HostArray({bf16, {}}, {0})}, {})[0].get(0), 1);
}

// ---- Gradients and batches

HostArray between(double low, double high, uint32_t seed = 1) {
  HostArray x({f64, {12}});
  std::mt19937 random(seed);
  for (int64_t i = 0; i < 12; ++i) x.set(i, std::uniform_real_distribution<double>(low, high)(random));
  return x;
}

TEST(Elementwise, GradientsMatchFiniteDifferences) {
  for (const Op* op : {&neg_op, &abs_op, &exp_op, &expm1_op, &tanh_op, &logistic_op, &softplus_op, &erf_op, &sin_op,
                       &cos_op, &floor_op, &sign_op, &gelu_op, &gelu_slope_op, &gelu_exact_op, &gelu_exact_slope_op,
                       &silu_op, &silu_slope_op}) {
    SCOPED_TRACE(op->name);
    expect_gradient({between(-2, 2)}, [&](const Values& v) -> Values { return {emit(*op, {v[0]})}; });
  }
  for (const Op* op : {&log_op, &log1p_op, &sqrt_op, &rsqrt_op, &erf_inv_op}) {
    SCOPED_TRACE(op->name);
    expect_gradient({between(0.1, 0.9)}, [&](const Values& v) -> Values { return {emit(*op, {v[0]})}; });
  }
  for (const Op* op : {&add_op, &sub_op, &mul_op, &div_op, &rem_op, &pow_op, &logaddexp_op, &maximum_op, &minimum_op}) {
    SCOPED_TRACE(op->name);
    expect_gradient({between(0.5, 3), between(0.5, 3, 2)}, [&](const Values& v) -> Values {
      return {emit(*op, {v[0], v[1]})};
    });
  }
  expect_gradient({between(-1, 1), between(-1, 1, 2)},
                  [](const Values& v) -> Values { return {select(lt(v[0], v[1]), v[0] * v[1], v[1])}; });
}

std::vector<HostArray> gradients(const HostArrays& in, const ValueFunction& f) {
  std::vector<Type> types;
  for (const HostArray& x : in) types.push_back(x.type);
  const Program both = joint(trace(types, f), std::vector<bool>(in.size(), true));
  HostArrays with_ct = in;
  with_ct.push_back(HostArray(in[0].type, std::vector<double>(static_cast<size_t>(in[0].size()), 1.0)));
  HostArrays out = evaluate(both, with_ct);
  return {out.begin() + 1, out.end()};
}

TEST(Elementwise, GradientsAreDefinedAtCorners) {
  const auto tie = gradients({numbers(f32, {1, 2}), numbers(f32, {1, 3})},
                             [](const Values& v) -> Values { return {maximum(v[0], v[1])}; });
  EXPECT_EQ(tie[0].values(), (std::vector<double>{0.5, 0}));
  EXPECT_EQ(tie[1].values(), (std::vector<double>{0.5, 1}));
  const auto power = gradients({numbers(f32, {0, 0, 2}), numbers(f32, {2, 0, 0})},
                               [](const Values& v) -> Values { return {pow(v[0], v[1])}; });
  EXPECT_EQ(power[0].values(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(power[1].values()[0], 0);
  EXPECT_EQ(power[1].values()[1], 0);
  const auto zero = gradients({numbers(f32, {0, -1})}, [](const Values& v) -> Values { return {abs(v[0])}; });
  EXPECT_EQ(zero[0].values(), (std::vector<double>{1, -1}));  // 1 at 0, as in JAX
  const auto there_and_back =
      gradients({numbers(f32, {3})}, [](const Values& v) -> Values { return {cast(cast(v[0], bf16) * 2.0, f32)}; });
  EXPECT_EQ(there_and_back[0].values(), (std::vector<double>{2}));
}

TEST(Elementwise, BatchMatchesLoop) {
  const HostArrays in{normal_numbers({f64, {4}}, 1), normal_numbers({f64, {4}}, 2)};
  expect_batch_is_loop(
      in, [](const Values& v) -> Values { return {select(lt(v[0], v[1]), v[0] * v[1], tanh(v[1]))}; }, normal_numbers);
  expect_batch_is_loop(
      {in[0]}, [](const Values& v) -> Values { return {cast(v[0], i32)}; }, normal_numbers);
}

// ---- Folds

// Whether f(x) is simplified to x.
bool is_identity(DType t, const std::function<Value(Value)>& f) {
  const Program p = simplify(trace({{t, {3}}}, [&](const Values& v) -> Values { return {f(v[0])}; }));
  return p.eqns.empty() && p.outputs[0] == p.inputs[0];
}

TEST(Fold, NeutralOperandsAreRemoved) {
  for (DType t : {f32, bf16}) {
    EXPECT_TRUE(is_identity(t, [](Value x) { return x * 1.0; }));
    EXPECT_TRUE(is_identity(t, [](Value x) { return 1.0 * x; }));
    EXPECT_TRUE(is_identity(t, [](Value x) { return x / 1.0; }));
    EXPECT_TRUE(is_identity(t, [](Value x) { return x - 0.0; }));
    EXPECT_TRUE(is_identity(t, [](Value x) { return x + -0.0; }));
    EXPECT_TRUE(is_identity(t, [](Value x) { return pow(x, ones_like(x)); }));
    EXPECT_TRUE(is_identity(t, [](Value x) { return -(-x); }));
    EXPECT_TRUE(is_identity(t, [=](Value x) { return cast(x, t); }));
    EXPECT_TRUE(is_identity(t, [](Value x) { return select(lt(x, x * 2.0), x, x); }));
    // These change -0.0, NaN or infinities.
    EXPECT_FALSE(is_identity(t, [](Value x) { return x + 0.0; }));
    EXPECT_FALSE(is_identity(t, [](Value x) { return x - -0.0; }));
  }
  EXPECT_TRUE(is_identity(i32, [](Value x) { return x + 0.0; }));
  EXPECT_TRUE(is_identity(i32, [](Value x) { return bit_not(bit_not(x)); }));
}

TEST(Fold, SquareBecomesAProduct) {
  const std::vector<Type> types{{f32, {3}}};
  EXPECT_EQ(simplified(types, [](const Values& v) -> Values { return {pow(v[0], full_like(v[0], 2.0))}; }),
            simplified(types, [](const Values& v) -> Values { return {v[0] * v[0]}; }));
}

TEST(Fold, ConstantOperandsAreFolded) {
  const std::vector<Type> types{{f32, {3}}, {i32, {3}}, {bf16, {3}}};
  const auto same = [&](const ValueFunction& f, const ValueFunction& g) {
    EXPECT_EQ(simplified(types, f), simplified(types, g));
  };
  same([](const Values& v) -> Values { return {exp(full_like(v[0], 0.0)) + full_like(v[0], 2.0)}; },
       [](const Values& v) -> Values { return {full_like(v[0], 3.0)}; });
  same([](const Values& v) -> Values { return {cast(full_like(v[0], 2.75), i32) * full_like(v[1], 3)}; },
       [](const Values& v) -> Values { return {full_like(v[1], 6)}; });
  same([](const Values& v) -> Values { return {full_like(v[2], 1.0) / full_like(v[2], 3.0)}; },
       [](const Values& v) -> Values { return {full_like(v[2], static_cast<float>(BFloat16(1.0f / 3.0f)))}; });
  same([](const Values& v) -> Values { return {select(lt(full_like(v[1], 1), full_like(v[1], 2)), v[0], v[0] * 2.0)}; },
       [](const Values& v) -> Values { return {v[0]}; });
}

// ---- Errors

TEST(Elementwise, ErrorsNameTheRemedy) {
  const auto message = [](const Op& op, const std::vector<Type>& types, const Attrs& attrs = {}) {
    return error_of([&] { infer_types(op, types, attrs); });
  };
  EXPECT_EQ(message(add_op, {{f32, {2, 3}}, {f32, {3}}}),
            "add: operands are f32[2,3] and f32[3]; broadcast them to one shape");
  EXPECT_EQ(message(add_op, {{f32, {3}}, {i32, {3}}}), "add: operands are f32[3] and i32[3]; cast one of them");
  EXPECT_EQ(message(add_op, {{f32, {3}}}), "add: takes 2 operands and got 1");
  EXPECT_EQ(message(tanh_op, {{i32, {3}}}), "tanh: the operand is i32[3] and the op takes floats and complex numbers; cast it");
  EXPECT_EQ(message(select_op, {{i32, {3}}, {f32, {3}}, {f32, {3}}}),
            "select: the predicate is i32[3]; compare it with something, or cast it to bool");
  EXPECT_EQ(message(select_op, {{boolean, {2}}, {f32, {3}}, {f32, {3}}}),
            "select: the predicate is bool[2] and the branches are f32[3]; broadcast them to one shape");
  EXPECT_EQ(message(bitcast_op, {{f32, {3}}}, {{"dtype", f64}}),
            "bitcast: the operand is f32[3] and the result f64; both must have 32 or both 64 bits");
}

}  // namespace
}  // namespace lockstep
