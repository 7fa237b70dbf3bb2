// The scalar arithmetic of elementwise ops where that of C++ does not fit arrays: integers wrap, no operand traps, NaN
// propagates, shifts and conversions are defined for every value. Pure functions, safe from any thread, with internal
// linkage (see ops/math.h).
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/loops/complex_scalar.h"
#include "ops/math.h"
#include "ops/special.h"

namespace lockstep::math {

template <class T>
inline constexpr bool is_float = std::is_floating_point_v<T>;
template <class T>
inline constexpr bool is_bool = std::is_same_v<T, bool>;
template <class T>
inline constexpr bool is_int = std::is_integral_v<T> && !is_bool<T> && !is_complex<T>;

// The type in which T wraps. At least as wide as int: a product of two smaller ones would be promoted to int.
template <class T>
struct WrapType {
  using type = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
};
template <>
struct WrapType<float> {
  using type = float;
};
template <>
struct WrapType<double> {
  using type = double;
};
template <class T>
using Wrap = typename WrapType<T>::type;

template <class T>
inline constexpr int kWidth = static_cast<int>(sizeof(T)) * 8;
template <class T>
inline constexpr T kLowest = std::is_signed_v<T> ? static_cast<T>(T(1) << (kWidth<T> - 1)) : T(0);
template <class T>
inline constexpr T kHighest = static_cast<T>(~kLowest<T>);

template <class T>
LOCKSTEP_INLINE T add(T a, T b) {
  return static_cast<T>(Wrap<T>(a) + Wrap<T>(b));
}
template <class T>
LOCKSTEP_INLINE T sub(T a, T b) {
  return static_cast<T>(Wrap<T>(a) - Wrap<T>(b));
}
template <class T>
LOCKSTEP_INLINE T mul(T a, T b) {
  return static_cast<T>(Wrap<T>(a) * Wrap<T>(b));
}
template <class T>
LOCKSTEP_INLINE T neg(T x) {
  if constexpr (is_float<T>)
    return -x;
  else
    return sub(T(0), x);
}

// x / 0 has all bits set; the lowest integer over -1 wraps to itself.
template <class T>
LOCKSTEP_INLINE T div(T a, T b) {
  if constexpr (is_float<T>) {
    return a / b;
  } else {
    if (b == T(0)) return static_cast<T>(~T(0));
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return neg(a);
    return static_cast<T>(a / b);
  }
}

// The sign is the dividend's; x rem 0 is x for integers.
template <class T>
LOCKSTEP_INLINE T rem(T a, T b) {
  if constexpr (is_float<T>) {
    return fmod(a, b);
  } else {
    if (b == T(0)) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return T(0);
    return static_cast<T>(a % b);
  }
}

// Integers: a power with a negative exponent is 0 unless the base is 1 or -1.
template <class T>
requires is_int<T> LOCKSTEP_INLINE T pow(T base, T exponent) {
  if constexpr (std::is_signed_v<T>)
    if (exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? ((exponent & T(1)) ? T(-1) : T(1)) : T(0);
  T result(1);
  for (auto n = static_cast<std::make_unsigned_t<T>>(exponent); n != 0; n = static_cast<decltype(n)>(n >> 1)) {
    if (n & 1u) result = mul(result, base);
    base = mul(base, base);
  }
  return result;
}

template <class T>
requires is_int<T> LOCKSTEP_INLINE T abs(T x) { return x < T(0) ? neg(x) : x; }

template <class T>
LOCKSTEP_INLINE T sign(T x) {
  const T one = x < T(0) ? static_cast<T>(-1) : T(1);
  // Zero and NaN are their own sign.
  return x > T(0) || x < T(0) ? one : x;
}

// NaN if either is NaN.
template <class T>
LOCKSTEP_INLINE T maximum(T a, T b) {
  const T larger = a > b ? a : b;
  return a != a ? a : larger;
}
template <class T>
LOCKSTEP_INLINE T minimum(T a, T b) {
  const T smaller = a < b ? a : b;
  return a != a ? a : smaller;
}

LOCKSTEP_INLINE float rsqrt(float x) { return 1.0f / sqrt(x); }
LOCKSTEP_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }

template <class T>
LOCKSTEP_INLINE bool is_finite(T x) {
  return x - x == T(0);
}

template <class T>
LOCKSTEP_INLINE T bit_not(T x) {
  if constexpr (is_bool<T>)
    return !x;
  else
    return static_cast<T>(~x);
}

// Shifts by the width or more, or by a negative count, move every bit out.
template <class T>
LOCKSTEP_INLINE T shift_left(T x, T count) {
  using U = std::make_unsigned_t<T>;
  const U n = static_cast<U>(count);
  const U inside = n < U(kWidth<T>) ? n : U(0);
  return n < U(kWidth<T>) ? static_cast<T>(static_cast<U>(x) << inside) : T(0);
}
template <class T>
LOCKSTEP_INLINE T shift_right(T x, T count) {
  using U = std::make_unsigned_t<T>;
  const U n = static_cast<U>(count);
  const U inside = n < U(kWidth<T>) ? n : U(kWidth<T> - 1);
  const T shifted = static_cast<T>(x >> inside);
  if constexpr (std::is_signed_v<T>)
    return shifted;
  else
    return n < U(kWidth<T>) ? shifted : T(0);
}

// Floats are truncated to integers and clamped to their range, NaN becomes 0; integers wrap; to bool is "not zero".
template <class To, class From>
LOCKSTEP_INLINE To cast(From x) {
  if constexpr (is_complex<To>) {
    return {static_cast<decltype(To::re)>(x.re), static_cast<decltype(To::re)>(x.im)};
  } else if constexpr (is_bool<To>) {
    return x != From(0);
  } else if constexpr (is_float<From> && is_int<To>) {
    // The bounds are powers of two (or zero), exact in either float.
    constexpr From low = static_cast<From>(kLowest<To>);
    constexpr From high = static_cast<From>(static_cast<double>(kHighest<To> / 2 + 1) * 2.0);
    const bool inside = x > low - From(1) && x >= low && x < high;
    const To truncated = static_cast<To>(inside ? x : From(0));
    const To limit = x >= high ? kHighest<To> : x < low ? kLowest<To> : To(0);
    return inside ? truncated : limit;
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace lockstep::math
