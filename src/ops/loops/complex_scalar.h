// The scalar arithmetic and the elementary functions of complex numbers (see ops/loops/scalar.h). The functions of c64
// that add squares do so in double, where nothing overflows or cancels. Pure functions, safe from any thread, with
// internal linkage.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/math.h"
#include "ops/special.h"

namespace lockstep::math {

// A complex number in registers and in memory.
template <class R>
struct Complex {
  R re, im;
};
template <class T>
inline constexpr bool is_complex = false;
template <class R>
inline constexpr bool is_complex<Complex<R>> = true;

template <class R>
LOCKSTEP_INLINE Complex<R> neg(Complex<R> x) {
  return {-x.re, -x.im};
}
template <class R>
LOCKSTEP_INLINE Complex<R> add(Complex<R> a, Complex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class R>
LOCKSTEP_INLINE Complex<R> sub(Complex<R> a, Complex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
// x, which is rounded before it is added to something. g++ 12 vectorizes pairs of a sum and a difference of products with
// fused instructions, also without contraction; results would then depend on where in a vector an element is.
template <class R>
LOCKSTEP_INLINE R rounded(R x) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  asm("" : "+x"(x));
#elif defined(__aarch64__) && !defined(__CUDACC__)
  asm("" : "+w"(x));
#endif
  return x;
}
template <class R>
LOCKSTEP_INLINE Complex<R> mul(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - rounded(a.im * b.im), a.re * b.im + rounded(a.im * b.re)};
}
// Smith's algorithm: divides by the larger part of the divisor first, so that no square overflows.
template <class R>
LOCKSTEP_INLINE Complex<R> div(Complex<R> a, Complex<R> b) {
  const bool wide = abs(b.re) >= abs(b.im);
  const R large = wide ? b.re : b.im, small = wide ? b.im : b.re;
  const R ratio = large == R(0) ? R(0) : small / large;
  const R scale = large + small * ratio;
  const R re = wide ? a.re + rounded(a.im * ratio) : rounded(a.re * ratio) + a.im;
  const R im = wide ? a.im - rounded(a.re * ratio) : rounded(a.im * ratio) - a.re;
  return {re / scale, im / scale};
}
template <class R>
LOCKSTEP_INLINE bool operator==(Complex<R> a, Complex<R> b) {
  return a.re == b.re && a.im == b.im;
}
template <class R>
LOCKSTEP_INLINE bool operator!=(Complex<R> a, Complex<R> b) {
  return !(a == b);
}

LOCKSTEP_INLINE double copysign(double x, double sign) { return __builtin_copysign(x, sign); }
LOCKSTEP_INLINE bool is_infinite(float x) { return abs(x) == kInf; }
LOCKSTEP_INLINE bool is_infinite(double x) { return abs(x) == __builtin_inf(); }

LOCKSTEP_INLINE double modulus(double a, double b) {
  const double x = abs(a), y = abs(b), most = x > y ? x : y, least = x > y ? y : x;
  if (is_infinite(a) || is_infinite(b)) return __builtin_inf();
  const double ratio = most == 0.0 ? 0.0 : least / most;
  return a != a || b != b ? a + b : most * sqrt(1.0 + ratio * ratio);
}
LOCKSTEP_INLINE float modulus(float a, float b) {
  const double x = static_cast<double>(a), y = static_cast<double>(b);
  return is_infinite(a) || is_infinite(b) ? kInf : static_cast<float>(sqrt(x * x + y * y));
}
template <class R>
LOCKSTEP_INLINE R abs(Complex<R> x) {
  return modulus(x.re, x.im);
}
template <class R>
LOCKSTEP_INLINE R angle(Complex<R> x) {
  return atan2(x.im, x.re);
}
template <class R>
LOCKSTEP_INLINE Complex<R> sign(Complex<R> x) {
  const R size = abs(x), divisor = size == R(0) ? R(1) : size;
  return {x.re / divisor, x.im / divisor};
}

// The logarithm of |x + iy|. Near 1 it is computed from |x + iy|^2 - 1 without cancellation.
LOCKSTEP_INLINE double log_hypot(double x, double y) {
  const double a = abs(x), b = abs(y), most = a > b ? a : b, least = a > b ? b : a;
  if (most > 0.5 && most < 2.0) return 0.5 * log1p((most - 1.0) * (most + 1.0) + least * least);
  return log(modulus(x, y));
}
LOCKSTEP_INLINE float log_hypot(float x, float y) {
  return static_cast<float>(log_hypot(static_cast<double>(x), static_cast<double>(y)));
}
template <class R>
LOCKSTEP_INLINE Complex<R> log(Complex<R> x) {
  return {log_hypot(x.re, x.im), angle(x)};
}
template <class R>
LOCKSTEP_INLINE Complex<R> log1p(Complex<R> x) {
  const auto re = static_cast<double>(x.re), im = static_cast<double>(x.im);
  const double most = abs(re) > abs(im) ? abs(re) : abs(im);
  const double size = most < 0.5 ? 0.5 * log1p(re * (2.0 + re) + im * im) : log_hypot(1.0 + re, im);
  return {static_cast<R>(size), atan2(x.im, R(1) + x.re)};
}

// e^x times sin(y) is exactly y for y = 0, also if e^x is infinite.
template <class R>
LOCKSTEP_INLINE Complex<R> exp(Complex<R> x) {
  const R size = exp(x.re);
  return {x.im == R(0) ? size : size * cos(x.im), x.im == R(0) ? x.im : size * sin(x.im)};
}
template <class R>
LOCKSTEP_INLINE Complex<R> expm1(Complex<R> x) {
  const R half = sin(R(0.5) * x.im);
  return {expm1(x.re) * cos(x.im) - R(2) * half * half, x.im == R(0) ? x.im : exp(x.re) * sin(x.im)};
}

template <class R>
LOCKSTEP_INLINE Complex<R> sqrt(Complex<R> x) {
  const R a = abs(x.re), b = abs(x.im);
  const R t = sqrt(R(0.5) * a + R(0.5) * modulus(a, b));
  const R other = t == R(0) ? b : b / (t + t);
  const bool right = x.re >= R(0);
  const R re = is_infinite(b) ? b : right ? t : other, im = is_infinite(b) ? b : right ? other : t;
  return {re, copysign(im, x.im)};
}
template <class R>
LOCKSTEP_INLINE Complex<R> rsqrt(Complex<R> x) {
  return div(Complex<R>{R(1), R(0)}, sqrt(x));
}

// cosh(x) and sinh(x).
template <class R>
struct Hyperbolic {
  R cosh, sinh;
};
template <class R>
LOCKSTEP_INLINE Hyperbolic<R> hyperbolic(R x) {
  const R less = expm1(abs(x)), e = less + R(1);
  return {R(0.5) * (e + R(1) / e), copysign(R(0.5) * (less + less / e), x)};
}
template <class R>
LOCKSTEP_INLINE Complex<R> sin(Complex<R> x) {
  const Hyperbolic<R> h = hyperbolic(x.im);
  return {sin(x.re) * h.cosh, cos(x.re) * h.sinh};
}
template <class R>
LOCKSTEP_INLINE Complex<R> cos(Complex<R> x) {
  const Hyperbolic<R> h = hyperbolic(x.im);
  return {cos(x.re) * h.cosh, -(sin(x.re) * h.sinh)};
}
// Kahan's algorithm; far from the imaginary axis, the limit.
template <class R>
LOCKSTEP_INLINE Complex<R> tanh(Complex<R> x) {
  const R a = abs(x.re), s = sin(x.im), c = cos(x.im);
  if (a > R(20)) return {copysign(R(1), x.re), R(4) * s * c * exp(R(-2) * a)};
  const R slope = s / c, beta = R(1) + slope * slope, h = hyperbolic(x.re).sinh;
  const R scale = R(1) + beta * h * h;
  return {beta * sqrt(R(1) + h * h) * h / scale, slope / scale};
}
template <class R>
LOCKSTEP_INLINE Complex<R> logistic(Complex<R> x) {
  const bool right = x.re >= R(0);
  const Complex<R> e = exp(right ? neg(x) : x), one{R(1), R(0)};
  return div(right ? one : e, add(one, e));
}

// e^(b log a); 0^b is 1 for b = 0, and 0 if the real part of b is positive.
template <class R>
LOCKSTEP_INLINE Complex<R> pow(Complex<R> a, Complex<R> b) {
  const Complex<R> zero{R(0), R(0)};
  if (b == zero) return {R(1), R(0)};
  if (a == zero && b.re > R(0)) return zero;
  return exp(mul(b, log(a)));
}

}  // namespace lockstep::math
