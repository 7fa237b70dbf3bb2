// Elementary functions of float without branches, tables or library calls, so that a loop over them is vectorized. (sin
// and cos branch for huge arguments; a loop uses sin_near and cos_near where it can.) Pure functions, safe from any
// thread. No fused multiply-add: every instruction set gives the same bits.
//
// Largest errors against the exact value, over all floats unless a range is given (tests/ops/elementwise_test.cc):
//   exp, log, log1p, expm1, erf, sin, cos  2 ulp
//   tanh, logistic  3 ulp        pow  1 ulp        erf_inv  as the published single-precision polynomials
// The double versions are the C library's.
//
// Special values are detected by integer comparisons of the bits: compilers turn selects on floats into long sequences
// that keep NaN quiet, or into branches.
//
// Every function has internal linkage: files compiled for different instruction sets must not share one copy.
#pragma once

#include <cstdint>

#define LOCKSTEP_INLINE [[gnu::always_inline]] static inline

namespace lockstep::math {

inline constexpr float kInf = __builtin_inff();
inline constexpr float kNan = __builtin_nanf("");

LOCKSTEP_INLINE uint32_t bits(float x) { return __builtin_bit_cast(uint32_t, x); }
LOCKSTEP_INLINE float from_bits(uint32_t u) { return __builtin_bit_cast(float, u); }

LOCKSTEP_INLINE float abs(float x) { return __builtin_fabsf(x); }
LOCKSTEP_INLINE double abs(double x) { return __builtin_fabs(x); }
LOCKSTEP_INLINE float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }

// x with |x| limited to `limit`, by comparing bits as integers. NaN becomes the limit with the sign of x.
LOCKSTEP_INLINE float limit_magnitude(float x, float limit) {
  const auto a = static_cast<int32_t>(bits(x) & 0x7fffffffu), most = static_cast<int32_t>(bits(limit));
  return from_bits(static_cast<uint32_t>(a < most ? a : most) | (bits(x) & 0x80000000u));
}

// `y`, or x where x is NaN.
LOCKSTEP_INLINE float keep_nan(float y, float x) {
  const auto a = static_cast<int32_t>(bits(x) & 0x7fffffffu);
  return from_bits(a > 0x7f800000 ? bits(x) : bits(y));
}

// 2^k, REQUIRES: -126 <= k <= 127.
LOCKSTEP_INLINE float exp2i(int32_t k) { return from_bits(static_cast<uint32_t>(k + 127) << 23); }

// Adding this constant rounds a small float to an integer, which is then in the low bits of the sum.
inline constexpr float kRound = 0x1.8p23f;
inline constexpr double kRoundDouble = 0x1.8p52;

// To the nearest integer, ties to even.
LOCKSTEP_INLINE float nearest(float x) {
  const float a = abs(x);
  const float rounded = copysign((a + 0x1p23f) - 0x1p23f, x);
  return from_bits(static_cast<int32_t>(bits(a)) < 0x4b000000 ? bits(rounded) : bits(x));
}

// ln 2 in two parts: the first has 16 bits, so that its product with an exponent is exact.
inline constexpr float kLn2Hi = 0x1.62e4p-1f;
inline constexpr float kLn2Lo = 1.42860677e-06f;

// x = k ln 2 + r with |r| <= ln 2 / 2, and e^r - 1.
struct ExpParts {
  int32_t k;
  float expm1_r;
};
LOCKSTEP_INLINE ExpParts exp_parts(float x) {
  const float t = x * 1.44269504f + kRound;
  const float n = t - kRound;
  const float r = (x - n * kLn2Hi) - n * kLn2Lo;
  float q = 0.001395078312f;
  q = q * r + 0.008369072842f;
  q = q * r + 0.04166620138f;
  q = q * r + 0.1666651731f;
  q = q * r + 0.5000000097f;
  return {static_cast<int32_t>(bits(t) - bits(kRound)), r + r * r * q};
}

LOCKSTEP_INLINE float exp(float x) {
  const ExpParts e = exp_parts(limit_magnitude(x, 104.0f));
  // Two steps, because 2^k alone may be too large or too small for a normal float.
  const int32_t half = e.k >> 1;
  return keep_nan((1.0f + e.expm1_r) * exp2i(half) * exp2i(e.k - half), x);
}

// REQUIRES: |x| <= 89.
LOCKSTEP_INLINE float expm1_inside(float x) {
  const ExpParts e = exp_parts(x);
  const float t = exp2i((e.k < -64 ? -64 : e.k) - 1);
  const float y = 2.0f * (t * e.expm1_r + (t - 0.5f));
  return from_bits(e.k == 0 ? bits(e.expm1_r) : bits(y));
}

LOCKSTEP_INLINE float expm1(float x) { return keep_nan(copysign(expm1_inside(limit_magnitude(x, 89.0f)), x), x); }

// log(2^k (1 + f)) + c for 1 + f in [sqrt(1/2), sqrt(2)] and a small c.
LOCKSTEP_INLINE float log_sum(float k, float f, float c) {
  const float s = f / (2.0f + f);
  const float z = s * s;
  const float r = z * (0.6666677673f + z * (0.3997749474f + z * 0.2987309277f));
  const float h = 0.5f * f * f;
  return k * kLn2Hi - ((h - (s * (h + r) + (k * kLn2Lo + c))) - f);
}

// Splits a float into an exponent and a significand from sqrt(1/2) to sqrt(2).
LOCKSTEP_INLINE int32_t log_exponent(uint32_t u) { return static_cast<int32_t>(u - 0x3f3504f3u) >> 23; }
LOCKSTEP_INLINE float log_significand(uint32_t u, int32_t k) { return from_bits(u - (static_cast<uint32_t>(k) << 23)); }

// `y`, the logarithm of the float with bits `u`, if that float is positive and finite; otherwise the special value of
// the logarithm there.
LOCKSTEP_INLINE float log_special(float y, uint32_t u) {
  const uint32_t above_zero = u == 0x7f800000u ? u : 0x7fc00000u;
  const uint32_t special = (u << 1) == 0 ? 0xff800000u : above_zero;
  return from_bits(static_cast<int32_t>(u) <= 0 || static_cast<int32_t>(u) >= 0x7f800000 ? special : bits(y));
}

LOCKSTEP_INLINE float log(float x) {
  const bool subnormal = static_cast<int32_t>(bits(x)) < 0x00800000;
  const uint32_t u = subnormal ? bits(x * 0x1p23f) : bits(x);
  const int32_t k = log_exponent(u);
  const float y = log_sum(static_cast<float>(k - (subnormal ? 23 : 0)), log_significand(u, k) - 1.0f, 0.0f);
  return log_special(y, bits(x));
}

LOCKSTEP_INLINE float log1p(float x) {
  const float sum = 1.0f + x;
  const uint32_t u = bits(sum);
  const int32_t k = log_exponent(u);
  // The rounding error of 1 + x.
  const float lost =
      from_bits(static_cast<int32_t>(bits(x)) >= 0x3f800000 ? bits(1.0f - (sum - x)) : bits(x - (sum - 1.0f)));
  const float f = from_bits(k == 0 ? bits(x) : bits(log_significand(u, k) - 1.0f));
  const float c = from_bits(k == 0 ? 0u : bits(lost / sum));
  return log_special(copysign(log_sum(static_cast<float>(k), f, c), x), u);
}

LOCKSTEP_INLINE float tanh(float x) {
  const float t = expm1_inside(2.0f * limit_magnitude(abs(x), 10.0f));
  return keep_nan(copysign(t / (t + 2.0f), x), x);
}

LOCKSTEP_INLINE float logistic(float x) {
  const float z = exp(-abs(x));
  return from_bits(static_cast<int32_t>(bits(x)) >= 0 ? bits(1.0f) : bits(z)) / (1.0f + z);
}

// log(1 + f). REQUIRES: 0 <= f <= 1, or NaN. Shorter than log1p(): there is no exponent to split off.
LOCKSTEP_INLINE float log1p_unit(float f) {
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 0.2380176336f;
  p = p * z + 0.2156262547f;
  p = p * z + 0.2860430777f;
  p = p * z + 0.3999933898f;
  p = p * z + 0.6666666865f;
  const float h = 0.5f * f * f;
  return f - (h - s * (h + z * p));
}

// log(e^a + e^b), where `gap` is a - b: a is the larger one if gap >= 0. The logarithm propagates NaN.
LOCKSTEP_INLINE float log_sum_exp(float a, float b, float gap) {
  const float larger = from_bits(static_cast<int32_t>(bits(gap)) >= 0 ? bits(a) : bits(b));
  return larger + log1p_unit(exp(-abs(gap)));
}
// The difference of equal infinities is NaN; it counts as 0.
LOCKSTEP_INLINE float logaddexp(float a, float b) {
  return log_sum_exp(a, b, from_bits(bits(a) == bits(b) ? 0u : bits(a - b)));
}
LOCKSTEP_INLINE float softplus(float x) { return log_sum_exp(x, 0.0f, x); }

LOCKSTEP_INLINE float erf(float x) {
  const float z = x * x;
  float p = 7.889119072e-5f;
  p = p * z - 0.0008020841518f;
  p = p * z + 0.005189535425f;
  p = p * z - 0.02685444468f;
  p = p * z + 0.1128360018f;
  p = p * z - 0.3761262714f;
  p = p * z + 0.1283791659f;
  const float small = x + x * p;
  // Beyond 1: erf(a) = 1 - e^g(a).
  const float a = limit_magnitude(abs(x), 4.0f);
  float g = 0.0001863780443f;
  g = g * a - 0.002947647876f;
  g = g * a + 0.02183802576f;
  g = g * a - 0.1031066819f;
  g = g * a - 0.6381449085f;
  g = g * a - 1.127089149f;
  g = g * a - 0.0003415320333f;
  const ExpParts e = exp_parts(g);
  const float large = copysign(1.0f - (1.0f + e.expm1_r) * exp2i(e.k), x);
  return keep_nan(from_bits(static_cast<int32_t>(bits(a)) < 0x3f800000 ? bits(small) : bits(large)), x);
}

// The single-precision polynomials of M. Giles, "Approximating the erfinv function" (2010).
LOCKSTEP_INLINE float erf_inv(float x) {
  const float w = -log1p(-x * x);
  // All ones where w < 5. Two selects of constants per coefficient would become a branch.
  const auto central = static_cast<uint32_t>((static_cast<int32_t>(bits(w)) - 0x40a00000) >> 31);
  const auto pick = [central](float a, float b) { return from_bits(bits(b) ^ ((bits(a) ^ bits(b)) & central)); };
  const float v = pick(w - 2.5f, __builtin_sqrtf(w) - 3.0f);
  float p = pick(2.81022636e-08f, -0.000200214257f);
  p = pick(3.43273939e-07f, 0.000100950558f) + p * v;
  p = pick(-3.5233877e-06f, 0.00134934322f) + p * v;
  p = pick(-4.39150654e-06f, -0.00367342844f) + p * v;
  p = pick(0.00021858087f, 0.00573950773f) + p * v;
  p = pick(-0.00125372503f, -0.0076224613f) + p * v;
  p = pick(-0.00417768164f, 0.00943887047f) + p * v;
  p = pick(0.246640727f, 1.00167406f) + p * v;
  p = pick(1.50140941f, 2.83297682f) + p * v;
  return from_bits((bits(x) & 0x7fffffffu) == 0x3f800000u ? bits(copysign(kInf, x)) : bits(p * x));
}

// x = n pi/2 + r with |r| <= pi/4, and n modulo 4.
struct Turn {
  float r;
  uint32_t quadrant;
};

// The bits of 2^20. Below it near_turn() is exact enough; above it, and for infinities and NaN, far_turn() is needed.
inline constexpr uint32_t kFarTurn = 0x49800000u;
LOCKSTEP_INLINE bool is_far(float x) { return (bits(x) & 0x7fffffffu) >= kFarTurn; }

// In double, where n times the first part of pi/2 (33 bits) is exact. REQUIRES: |x| < 2^20, or the result is not used.
LOCKSTEP_INLINE Turn near_turn(float x) {
  const double wide = x;
  const double t = wide * 0.63661977236758134 + kRoundDouble;
  const double n = t - kRoundDouble;
  const double r = (wide - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34;
  return {static_cast<float>(r), static_cast<uint32_t>(__builtin_bit_cast(uint64_t, t))};
}

// Payne and Hanek's reduction: x = m 2^e with an integer m of 24 bits; only the bits of m 2^e 2/pi below 4 count. Bits
// of 2/pi before that contribute multiples of 4; the next 96 bits give the fraction to 2^-62. The seven words are 2/pi
// after five zero bits, so that e = -3 (x = 2^20) begins at the first bit. They are shifted by selects instead of table
// lookups: no memory access and no branch. REQUIRES: |x| >= 2^20, infinity or NaN (whose r is NaN).
LOCKSTEP_INLINE Turn far_turn(float x) {
  const uint32_t a = bits(x) & 0x7fffffffu;
  const uint32_t m = (a & 0x007fffffu) | 0x00800000u;
  const uint32_t begin = (a >> 23) - 147u;  // 0 to 107; 108 for infinity and NaN
  const bool by_64 = (begin & 64u) != 0, by_32 = (begin & 32u) != 0;
  const uint32_t a0 = by_64 ? 0x4fe13abeu : 0x0517cc1bu, a1 = by_64 ? 0x8fa9a6eeu : 0x727220a9u;
  const uint32_t a2 = by_64 ? 0x06db14acu : 0x4fe13abeu, a3 = by_64 ? 0xc9e21c82u : 0x8fa9a6eeu;
  const uint32_t a4 = by_64 ? 0x0ff28b1du : 0x06db14acu;
  const uint32_t b0 = by_32 ? a1 : a0, b1 = by_32 ? a2 : a1, b2 = by_32 ? a3 : a2, b3 = by_32 ? a4 : a3;
  const uint32_t shift = begin & 31u;
  const uint64_t w0 = (((uint64_t(b0) << 32) | b1) << shift) >> 32;
  const uint64_t w1 = (((uint64_t(b1) << 32) | b2) << shift) >> 32;
  const uint64_t w2 = (((uint64_t(b2) << 32) | b3) << shift) >> 32;
  // The upper 64 of the 96 bits of m w: two of complete quarter turns, 62 of their fraction.
  const uint64_t turns = ((m * w0) << 32) + m * w1 + ((m * w2) >> 32);
  const auto quadrant = static_cast<uint32_t>((turns + (uint64_t(1) << 61)) >> 62);
  const double fraction = static_cast<double>(static_cast<int64_t>(turns << 2));
  const auto r = static_cast<float>(fraction * 0x1.921fb54442d18p-64);
  const bool negative = (bits(x) >> 31) != 0;
  const uint32_t finite = bits(r) ^ (bits(x) & 0x80000000u);
  return {from_bits(a >= 0x7f800000u ? 0x7fc00000u : finite), negative ? 0u - quadrant : quadrant};
}

LOCKSTEP_INLINE float sin_r(float r) {
  const float z = r * r;
  return r + r * z * (-0.1666665487f + z * (0.00833217354f + z * -0.0001951665559f));
}
LOCKSTEP_INLINE float cos_r(float r) {
  const float z = r * r;
  return 1.0f - (0.5f * z - z * z * (0.04166664675f + z * (-0.001388736145f + z * 2.443773019e-5f)));
}
LOCKSTEP_INLINE float sin_turn(Turn t) {
  const float s = sin_r(t.r), c = cos_r(t.r);
  return from_bits(((t.quadrant & 1u) != 0 ? bits(c) : bits(s)) ^ ((t.quadrant & 2u) << 30));
}

// The functions for !is_far(x), without a branch.
LOCKSTEP_INLINE float sin_near(float x) {
  return from_bits((bits(x) << 1) == 0 ? bits(x) : bits(sin_turn(near_turn(x))));
}
LOCKSTEP_INLINE float cos_near(float x) {
  const Turn t = near_turn(x);
  return sin_turn({t.r, t.quadrant + 1u});
}

LOCKSTEP_INLINE float sin(float x) { return is_far(x) ? sin_turn(far_turn(x)) : sin_near(x); }
LOCKSTEP_INLINE float cos(float x) {
  if (!is_far(x)) return cos_near(x);
  const Turn t = far_turn(x);
  return sin_turn({t.r, t.quadrant + 1u});
}

// log2(1 + f) with a relative error below 1e-9, for 1 + f in [sqrt(1/2), sqrt(2)].
LOCKSTEP_INLINE double log2_unit(double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 0.340759361846654514;
  p = p * z + 0.411671134611502524;
  p = p * z + 0.577083611570791852;
  p = p * z + 0.961796673200180345;
  p = p * z + 2.88539008179020255;
  return s * p;
}

// 2^e with a relative error below 1e-9. Exponents are limited to 200; NaN becomes 200.
LOCKSTEP_INLINE double exp2_wide(double e) {
  constexpr double kLimit = 200.0;
  const uint64_t ue = __builtin_bit_cast(uint64_t, e);
  const auto ae = static_cast<int64_t>(ue & ~(uint64_t(1) << 63)), most = __builtin_bit_cast(int64_t, kLimit);
  const uint64_t limited = static_cast<uint64_t>(ae < most ? ae : most) | (ue & (uint64_t(1) << 63));
  const double power = __builtin_bit_cast(double, limited);
  const double t = power + kRoundDouble;
  const double r = power - (t - kRoundDouble);
  double q = 0.000154780419142138847;
  q = q * r + 0.00134004590115939118;
  q = q * r + 0.00961799444942852299;
  q = q * r + 0.0555032714715159005;
  q = q * r + 0.240226515056064281;
  q = q * r + 0.693147206741891193;
  q = q * r + 0.999999999918893363;
  const uint64_t scale = (__builtin_bit_cast(uint64_t, t) - __builtin_bit_cast(uint64_t, kRoundDouble) + 1023u) << 52;
  return q * __builtin_bit_cast(double, scale);
}

// 2^(y log2 |x|) in double, with the exceptional cases of C's pow.
LOCKSTEP_INLINE float pow(float x, float y) {
  const auto a = static_cast<int32_t>(bits(x) & 0x7fffffffu), ay = static_cast<int32_t>(bits(y) & 0x7fffffffu);
  constexpr int32_t kInfBits = 0x7f800000;
  const float magnitude_x = from_bits(static_cast<uint32_t>(a));
  const bool subnormal = a < 0x00800000;
  const uint32_t u = subnormal ? bits(magnitude_x * 0x1p23f) : static_cast<uint32_t>(a);
  const int32_t k = log_exponent(u);
  const double fraction_of_log = log2_unit(static_cast<double>(log_significand(u, k)) - 1.0);
  // Zero and infinity as powers of two so extreme that no exponent brings them back into range.
  const uint32_t below = a == 0 ? bits(-0x1p126f) : 0u, above = a >= kInfBits ? bits(0x1p126f) : 0u;
  const float far = from_bits(below | above);
  const double whole =
      static_cast<double>(static_cast<float>(k - (subnormal ? 23 : 0))) + static_cast<double>(far) * 0x1p800;
  const double e = static_cast<double>(y) * (whole + fraction_of_log);
  const float magnitude = static_cast<float>(exp2_wide(e));

  const float half = 0.5f * y;
  const uint32_t fraction = bits(nearest(y)) ^ bits(y);  // 0: y is an integer
  const uint32_t half_fraction = bits(nearest(half)) ^ bits(half);
  const uint32_t sign = bits(x) & 0x80000000u;
  const uint32_t odd_sign = half_fraction != 0 ? sign : 0u;
  const uint32_t value = bits(magnitude) | (fraction == 0 ? odd_sign : 0u);
  // Masks rather than &&, which would be control flow.
  const uint32_t inside = (a != 0 ? sign : 0u) & (a != kInfBits ? sign : 0u);
  const uint32_t root = fraction != 0 ? inside : 0u;  // of a negative number
  const int32_t largest = a > ay ? a : ay;
  const uint32_t real = root != 0 ? bits(kNan) : value;
  const uint32_t defined = largest > kInfBits ? bits(kNan) : real;
  const uint32_t unit_to_infinity = (static_cast<uint32_t>(a) ^ bits(1.0f)) | (static_cast<uint32_t>(ay) ^ bits(kInf));
  const uint32_t base_one = bits(x) == bits(1.0f) ? bits(1.0f) : defined;
  const uint32_t infinite = unit_to_infinity == 0 ? bits(1.0f) : base_one;
  return from_bits(ay == 0 ? bits(1.0f) : infinite);
}

LOCKSTEP_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
LOCKSTEP_INLINE float floor(float x) { return __builtin_floorf(x); }
LOCKSTEP_INLINE float ceil(float x) { return __builtin_ceilf(x); }
LOCKSTEP_INLINE float trunc(float x) { return __builtin_truncf(x); }
LOCKSTEP_INLINE float fmod(float x, float y) { return __builtin_fmodf(x, y); }

LOCKSTEP_INLINE double exp(double x) { return __builtin_exp(x); }
LOCKSTEP_INLINE double expm1(double x) { return __builtin_expm1(x); }
LOCKSTEP_INLINE double log(double x) { return __builtin_log(x); }
LOCKSTEP_INLINE double log1p(double x) { return __builtin_log1p(x); }
LOCKSTEP_INLINE double tanh(double x) { return __builtin_tanh(x); }
LOCKSTEP_INLINE double erf(double x) { return __builtin_erf(x); }
LOCKSTEP_INLINE double sin(double x) { return __builtin_sin(x); }
LOCKSTEP_INLINE double cos(double x) { return __builtin_cos(x); }
LOCKSTEP_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }
LOCKSTEP_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
LOCKSTEP_INLINE double floor(double x) { return __builtin_floor(x); }
LOCKSTEP_INLINE double ceil(double x) { return __builtin_ceil(x); }
LOCKSTEP_INLINE double trunc(double x) { return __builtin_trunc(x); }
LOCKSTEP_INLINE double fmod(double x, double y) { return __builtin_fmod(x, y); }
LOCKSTEP_INLINE double nearest(double x) { return __builtin_rint(x); }

LOCKSTEP_INLINE double logistic(double x) {
  const double z = exp(-abs(x));
  return (x >= 0.0 ? 1.0 : z) / (1.0 + z);
}

LOCKSTEP_INLINE double logaddexp(double a, double b) {
  const double gap = a == b ? 0.0 : a - b;
  return (gap >= 0.0 ? a : b) + log1p(exp(-abs(gap)));
}
LOCKSTEP_INLINE double softplus(double x) { return (x >= 0.0 ? x : 0.0) + log1p(exp(-abs(x))); }

// Starts from the single-precision form or, near 1, from the tail of the normal distribution. Then Halley's method, on
// erf near 0 and elsewhere on erfc, which keeps its digits there.
LOCKSTEP_INLINE double erf_inv(double x) {
  const double a = abs(x);
  if (!(a < 1.0)) return a == 1.0 ? x * __builtin_inf() : __builtin_nan("");
  const double w = -log1p(-a * a);
  double y = a < 0.999999 ? static_cast<double>(erf_inv(static_cast<float>(a))) : sqrt(w - 0.5 * log(w) - 0.5);
  for (int step = 0; step < 4; ++step) {
    const double error = a < 0.5 ? __builtin_erf(y) - a : (1.0 - a) - __builtin_erfc(y);
    const double newton = error * 0.88622692545275801 * exp(y * y);
    y -= newton / (1.0 + y * newton);
  }
  return x < 0.0 ? -y : y;
}

LOCKSTEP_INLINE double limit_magnitude(double x, double limit) {
  return abs(x) < limit ? x : (x < 0.0 ? -limit : limit);
}
LOCKSTEP_INLINE double keep_nan(double y, double x) { return x != x ? x : y; }

// Activation functions and their derivatives. Arguments are limited where a derivative is constant, because its terms
// would overflow.
// gelu(x) = x logistic(2 u), where tanh(u) is the tanh of its usual definition: (1 + tanh(u)) / 2 = logistic(2 u), which
// has no cancellation. Returns 2 u.
template <class T>
LOCKSTEP_INLINE T gelu_argument(T x) {
  return T(1.5957691216057307712) * (x + T(0.044715) * (x * x * x));
}
// The derivative at a, where s = logistic(2 u).
template <class T>
LOCKSTEP_INLINE T gelu_slope_from(T a, T s) {
  return s + a * (s * (T(1) - s)) * (T(1.5957691216057307712) * (T(1) + T(3 * 0.044715) * (a * a)));
}
template <class T>
LOCKSTEP_INLINE T gelu(T x) {
  return x * logistic(gelu_argument(x));
}
template <class T>
LOCKSTEP_INLINE T gelu_slope(T x) {
  const T a = limit_magnitude(x, T(64));
  return keep_nan(gelu_slope_from(a, logistic(gelu_argument(a))), x);
}
template <class T>
LOCKSTEP_INLINE T gelu_exact(T x) {
  return x * (T(0.5) * (T(1) + erf(T(0.70710678118654752440) * x)));
}
template <class T>
LOCKSTEP_INLINE T gelu_exact_slope(T x) {
  const T a = limit_magnitude(x, T(64));
  const T density = T(0.39894228040143267794) * exp(T(-0.5) * (a * a));
  return T(0.5) * (T(1) + erf(T(0.70710678118654752440) * x)) + a * density;
}
template <class T>
LOCKSTEP_INLINE T silu(T x) {
  return x * logistic(x);
}
template <class T>
LOCKSTEP_INLINE T silu_slope(T x) {
  const T s = logistic(x);
  return s * (T(1) + limit_magnitude(x, T(1000)) * (T(1) - s));
}

}  // namespace lockstep::math
