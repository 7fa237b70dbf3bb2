// The definitions of the loop tables, included once by each file that compiles them for an instruction set. Everything
// here has internal linkage and calls no function of the standard library, so that no function compiled for one
// instruction set is shared with another.
#pragma once

#include "ops/loops/float8_bits.h"
#include "ops/loops/loops.h"
#include "ops/loops/norm_loops_impl.h"
#include "ops/loops/scalar.h"
#include "ops/loops/vectorize.h"

namespace lockstep {
namespace {

struct floating {
  template <class T>
  static constexpr bool has = math::is_float<T>;
};
struct analytic {
  template <class T>
  static constexpr bool has = math::is_float<T> || math::is_complex<T>;
};
struct integers {
  template <class T>
  static constexpr bool has = math::is_int<T>;
};
struct numeric {
  template <class T>
  static constexpr bool has = math::is_float<T> || math::is_int<T>;
};
struct arithmetic {
  template <class T>
  static constexpr bool has = !math::is_bool<T>;
};
struct integral {
  template <class T>
  static constexpr bool has = math::is_int<T> || math::is_bool<T>;
};
struct ordered {
  template <class T>
  static constexpr bool has = !math::is_complex<T>;
};
struct any {
  template <class T>
  static constexpr bool has = true;
};

// Long dependency chains leave a core idle unless several vectors are in progress at the same time, so expensive
// functions are evaluated in blocks.
#if defined(__aarch64__)
inline constexpr int64_t kBlock = 16;
#else
inline constexpr int64_t kBlock = 32;
#endif
inline constexpr int kExpensive = 8;

// Near<F>::call is the form of F that is vectorized but wrong for large floats (math::is_far). A block that contains
// such a float is computed one element at a time.
template <class F>
struct Near {};

LOCKSTEP_INLINE bool any_far(const float* x, int64_t n) {
  uint32_t below = 0;  // its sign bit: a difference was negative
  for (int64_t i = 0; i < n; ++i) below |= (math::kFarTurn - 1u) - (math::bits(x[i]) & 0x7fffffffu);
  return (below >> 31) != 0;
}

template <class F>
void near_loop(float* y, const float* x, int64_t n) {
  int64_t done = 0;
  for (; done + kBlock <= n; done += kBlock) {
    float block[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) block[i] = Near<F>::call(x[done + i]);
    if (any_far(x + done, kBlock)) [[unlikely]]
      for (int64_t i = 0; i < kBlock; ++i) block[i] = F::call(x[done + i]);
    for (int64_t i = 0; i < kBlock; ++i) y[done + i] = block[i];
  }
  if (any_far(x + done, n - done)) {
    for (int64_t i = done; i < n; ++i) y[i] = F::call(x[i]);
    return;
  }
  LOCKSTEP_VECTORIZE
  for (int64_t i = done; i < n; ++i) y[i] = Near<F>::call(x[i]);
}

template <class F, class T>
void unary_loop(void* out, const void* const* in, int64_t n) {
  using Out = decltype(F::call(T()));
  auto* y = static_cast<Out*>(out);
  const auto* x = static_cast<const T*>(in[0]);
  if constexpr (std::is_same_v<T, float> && requires { Near<F>::call(T()); }) return near_loop<F>(y, x, n);
  int64_t done = 0;
  if constexpr (F::kCost >= kExpensive && std::is_same_v<T, float>) {
    for (; done + kBlock <= n; done += kBlock) {
      Out block[kBlock];
      for (int64_t i = 0; i < kBlock; ++i) block[i] = F::call(x[done + i]);
      for (int64_t i = 0; i < kBlock; ++i) y[done + i] = block[i];
    }
  }
  LOCKSTEP_VECTORIZE
  for (int64_t i = done; i < n; ++i) y[i] = F::call(x[i]);
}

template <class F, class T>
void binary_loop(void* out, const void* const* in, int64_t n) {
  using Out = decltype(F::call(T(), T()));
  auto* y = static_cast<Out*>(out);
  const auto* a = static_cast<const T*>(in[0]);
  const auto* b = static_cast<const T*>(in[1]);
  int64_t done = 0;
  if constexpr (F::kCost >= kExpensive && std::is_same_v<T, float>) {
    for (; done + kBlock <= n; done += kBlock) {
      Out block[kBlock];
      for (int64_t i = 0; i < kBlock; ++i) block[i] = F::call(a[done + i], b[done + i]);
      for (int64_t i = 0; i < kBlock; ++i) y[done + i] = block[i];
    }
  }
  LOCKSTEP_VECTORIZE
  for (int64_t i = done; i < n; ++i) y[i] = F::call(a[i], b[i]);
}

// One operand, number kUniform, is the same for all elements.
template <class F, class T, int kUniform>
void uniform_loop(void* out, const void* const* in, int64_t n) {
  using Out = decltype(F::call(T(), T()));
  auto* y = static_cast<Out*>(out);
  const auto* x = static_cast<const T*>(in[1 - kUniform]);
  const T same = *static_cast<const T*>(in[kUniform]);
  LOCKSTEP_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = kUniform == 0 ? F::call(same, x[i]) : F::call(x[i], same);
}

template <class T>
void select_loop(void* out, const void* const* in, int64_t n) {
  auto* y = static_cast<T*>(out);
  const auto* p = static_cast<const uint8_t*>(in[0]);
  const auto* a = static_cast<const T*>(in[1]);
  const auto* b = static_cast<const T*>(in[2]);
  LOCKSTEP_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const T if_true = a[i], if_false = b[i];
    y[i] = p[i] != 0 ? if_true : if_false;
  }
}

#define UNARY(name, linear, dtypes, cost, expression, ...) \
  struct name##_f {                                        \
    using Set = dtypes;                                    \
    static constexpr int kCost = cost;                     \
    template <class T>                                     \
    LOCKSTEP_INLINE T call(T x) {                          \
      return expression;                                   \
    }                                                      \
  };
#define PREDICATE(name, dtypes, cost, expression) \
  struct name##_f {                               \
    using Set = dtypes;                           \
    static constexpr int kCost = cost;            \
    template <class T>                            \
    LOCKSTEP_INLINE bool call(T x) {              \
      return expression;                          \
    }                                             \
  };
#define BINARY(name, linear, dtypes, cost, expression, ...) \
  struct name##_f {                                         \
    using Set = dtypes;                                     \
    static constexpr int kCost = cost;                      \
    template <class T>                                      \
    LOCKSTEP_INLINE T call(T a, T b) {                      \
      return expression;                                    \
    }                                                       \
  };
#define COMPARE(name, dtypes, cost, expression) \
  struct name##_f {                             \
    using Set = dtypes;                         \
    static constexpr int kCost = cost;          \
    template <class T>                          \
    LOCKSTEP_INLINE bool call(T a, T b) {       \
      return expression;                        \
    }                                           \
  };
#include "ops/elementwise.def"

template <>
struct Near<sin_f> {
  LOCKSTEP_INLINE float call(float x) { return math::sin_near(x); }
};
template <>
struct Near<cos_f> {
  LOCKSTEP_INLINE float call(float x) { return math::cos_near(x); }
};

template <>
struct Near<tan_f> {
  LOCKSTEP_INLINE float call(float x) { return math::tan_near(x); }
};

template <class To>
struct cast_f {
  static constexpr int kCost = 1;
  template <class T>
  LOCKSTEP_INLINE To call(T x) {
    return math::cast<To>(x);
  }
};

// A float as an i32 in the range of a narrow integer.
template <class Narrow>
struct clamp_f {
  static constexpr int kCost = 1;
  template <class T>
  LOCKSTEP_INLINE int32_t call(T x) {
    return math::cast<Narrow>(x);
  }
};

template <class To, class From>
constexpr Loop cast_or_null() {
  if constexpr (math::is_complex<To> == math::is_complex<From>)
    return unary_loop<cast_f<To>, From>;
  else
    return nullptr;
}

struct make_complex_f {
  static constexpr int kCost = 1;
  template <class T>
  LOCKSTEP_INLINE math::Complex<T> call(T re, T im) {
    return {re, im};
  }
};
struct real_f {
  static constexpr int kCost = 1;
  template <class T>
  LOCKSTEP_INLINE T call(math::Complex<T> x) {
    return x.re;
  }
};
struct complex_abs_f {
  static constexpr int kCost = 8;
  template <class T>
  LOCKSTEP_INLINE T call(math::Complex<T> x) {
    return math::abs(x);
  }
};
struct complex_angle_f {
  static constexpr int kCost = 8;
  template <class T>
  LOCKSTEP_INLINE T call(math::Complex<T> x) {
    return math::angle(x);
  }
};
struct imag_f {
  static constexpr int kCost = 1;
  template <class T>
  LOCKSTEP_INLINE T call(math::Complex<T> x) {
    return x.im;
  }
};

template <class F, class T>
constexpr Loop unary_or_null() {
  if constexpr (F::Set::template has<T>)
    return unary_loop<F, T>;
  else
    return nullptr;
}
template <class F, class T>
constexpr Loop binary_or_null() {
  if constexpr (F::Set::template has<T>)
    return binary_loop<F, T>;
  else
    return nullptr;
}

template <class F, class T, int kUniform>
constexpr Loop uniform_or_null() {
  if constexpr (F::Set::template has<T> && math::is_float<T> && F::kCost < kExpensive)
    return uniform_loop<F, T, kUniform>;
  else
    return nullptr;
}

// The floats below f32 as bits; the same rounding as their types in lockstep/float8.h and lockstep/half.h.
struct E4M3Bits {
  uint8_t bits;
};
struct E5M2Bits {
  uint8_t bits;
};
struct Bf16Bits {
  uint16_t bits;
};
struct F16Bits {
  uint16_t bits;
};

LOCKSTEP_INLINE float widen(E4M3Bits x) { return math::from_e4m3(x.bits); }
LOCKSTEP_INLINE float widen(E5M2Bits x) { return math::from_e5m2(x.bits); }
LOCKSTEP_INLINE float widen(Bf16Bits x) { return math::from_bits(static_cast<uint32_t>(x.bits) << 16); }
LOCKSTEP_INLINE float widen(F16Bits x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  const uint32_t finite = math::bits(math::from_bits(magnitude << 13) * 0x1p112f);
  const uint32_t special = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
  return math::from_bits(sign | (magnitude >= 0x7c00u ? special : finite));
}

LOCKSTEP_INLINE E4M3Bits narrow(float x, E4M3Bits) { return {math::to_e4m3(x)}; }
LOCKSTEP_INLINE E5M2Bits narrow(float x, E5M2Bits) { return {math::to_e5m2(x)}; }
LOCKSTEP_INLINE Bf16Bits narrow(float x, Bf16Bits) {
  const uint32_t u = math::bits(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40u;
  return {static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
}
LOCKSTEP_INLINE F16Bits narrow(float x, F16Bits) {
  const uint32_t u = math::bits(x);
  const uint32_t magnitude = u & 0x7fffffffu;
  // Below the normal range the adder rounds at bit 2^-24.
  const uint32_t subnormal = math::bits(math::from_bits(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return {static_cast<uint16_t>(((u >> 16) & 0x8000u) | (magnitude >= 0x477ff000u ? large : finite))};
}

// Integers below i32 are registers of i32.
LOCKSTEP_INLINE int32_t widen(int8_t x) { return x; }
LOCKSTEP_INLINE int32_t widen(int16_t x) { return x; }
LOCKSTEP_INLINE int32_t widen(uint16_t x) { return x; }
LOCKSTEP_INLINE int8_t narrow(int32_t x, int8_t) { return static_cast<int8_t>(x); }
LOCKSTEP_INLINE int16_t narrow(int32_t x, int16_t) { return static_cast<int16_t>(x); }
LOCKSTEP_INLINE uint16_t narrow(int32_t x, uint16_t) { return static_cast<uint16_t>(x); }

template <class Small>
using RegisterOf = decltype(widen(Small()));

template <class Small>
void narrow_loop(void* out, const void* const* in, int64_t n) {
  auto* y = static_cast<Small*>(out);
  const auto* x = static_cast<const RegisterOf<Small>*>(in[0]);
  LOCKSTEP_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = narrow(x[i], Small());
}

template <class Small>
void round_loop(void* out, const void* const* in, int64_t n) {
  auto* y = static_cast<RegisterOf<Small>*>(out);
  const auto* x = static_cast<const RegisterOf<Small>*>(in[0]);
  LOCKSTEP_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = widen(narrow(x[i], Small()));
}

template <class T>
LOCKSTEP_INLINE T widen(T x) {
  return x;
}

template <class T>
void load_row(void* dst, const void* src, int64_t stride, int64_t n) {
  using Register = decltype(widen(T()));
  auto* y = static_cast<Register*>(dst);
  const auto* x = static_cast<const T*>(src);
  if (stride == 1) {
    LOCKSTEP_VECTORIZE
    for (int64_t i = 0; i < n; ++i) y[i] = widen(x[i]);
  } else if (stride == 0) {
    const Register value = n > 0 ? widen(x[0]) : Register();
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = widen(x[i * stride]);
  }
}

using Complex64 = math::Complex<float>;
using Complex128 = math::Complex<double>;

constexpr Loops make_loops() {
// M(T) for each register type, in the order of kRegisterTypeList.
#define LOCKSTEP_EACH(M)                                                                                      \
  {                                                                                                           \
    M(bool), M(uint8_t), M(uint32_t), M(uint64_t), M(int32_t), M(int64_t), M(float), M(double), M(Complex64), \
        M(Complex128)                                                                                         \
  }
#define LOCKSTEP_SELECT(T) select_loop<T>
#define LOCKSTEP_FROM(T)                                                                                             \
  {                                                                                                                  \
    cast_or_null<bool, T>(), cast_or_null<uint8_t, T>(), cast_or_null<uint32_t, T>(), cast_or_null<uint64_t, T>(),   \
        cast_or_null<int32_t, T>(), cast_or_null<int64_t, T>(), cast_or_null<float, T>(), cast_or_null<double, T>(), \
        cast_or_null<Complex64, T>(), cast_or_null<Complex128, T>()                                                  \
  }
#define LOCKSTEP_UNARY_ROW(name, ...)                                                                              \
  {unary_or_null<name##_f, bool>(),      unary_or_null<name##_f, uint8_t>(), unary_or_null<name##_f, uint32_t>(),  \
   unary_or_null<name##_f, uint64_t>(),  unary_or_null<name##_f, int32_t>(), unary_or_null<name##_f, int64_t>(),   \
   unary_or_null<name##_f, float>(),     unary_or_null<name##_f, double>(),  unary_or_null<name##_f, Complex64>(), \
   unary_or_null<name##_f, Complex128>()},
#define LOCKSTEP_BINARY_ROW(name, ...)                                                                                \
  {binary_or_null<name##_f, bool>(),      binary_or_null<name##_f, uint8_t>(), binary_or_null<name##_f, uint32_t>(),  \
   binary_or_null<name##_f, uint64_t>(),  binary_or_null<name##_f, int32_t>(), binary_or_null<name##_f, int64_t>(),   \
   binary_or_null<name##_f, float>(),     binary_or_null<name##_f, double>(),  binary_or_null<name##_f, Complex64>(), \
   binary_or_null<name##_f, Complex128>()},
#define UNARY LOCKSTEP_UNARY_ROW
#define PREDICATE LOCKSTEP_UNARY_ROW
#define BINARY LOCKSTEP_BINARY_ROW
#define COMPARE LOCKSTEP_BINARY_ROW
#define LOCKSTEP_NO_ROW(...) {},
#define LOCKSTEP_UNIFORM_ROW(kUniform, name)      \
  {nullptr,                                       \
   nullptr,                                       \
   nullptr,                                       \
   nullptr,                                       \
   nullptr,                                       \
   nullptr,                                       \
   uniform_or_null<name##_f, float, kUniform>(),  \
   uniform_or_null<name##_f, double, kUniform>(), \
   nullptr,                                       \
   nullptr},
#define LOCKSTEP_FIRST_ROW(name, ...) LOCKSTEP_UNIFORM_ROW(0, name)
#define LOCKSTEP_SECOND_ROW(name, ...) LOCKSTEP_UNIFORM_ROW(1, name)
  return {{
#include "ops/elementwise.def"
          },
          {{
#define UNARY LOCKSTEP_NO_ROW
#define PREDICATE LOCKSTEP_NO_ROW
#define BINARY LOCKSTEP_FIRST_ROW
#define COMPARE LOCKSTEP_FIRST_ROW
#include "ops/elementwise.def"
           },
           {
#define UNARY LOCKSTEP_NO_ROW
#define PREDICATE LOCKSTEP_NO_ROW
#define BINARY LOCKSTEP_SECOND_ROW
#define COMPARE LOCKSTEP_SECOND_ROW
#include "ops/elementwise.def"
           }},
          LOCKSTEP_EACH(LOCKSTEP_SELECT),
          LOCKSTEP_EACH(LOCKSTEP_FROM),
          {{nullptr, nullptr, nullptr, nullptr, unary_loop<clamp_f<int8_t>, float>, unary_loop<clamp_f<int16_t>, float>,
            unary_loop<clamp_f<uint16_t>, float>},
           {nullptr, nullptr, nullptr, nullptr, unary_loop<clamp_f<int8_t>, double>,
            unary_loop<clamp_f<int16_t>, double>, unary_loop<clamp_f<uint16_t>, double>}},
          {binary_loop<make_complex_f, float>, binary_loop<make_complex_f, double>},
          {unary_loop<real_f, Complex64>, unary_loop<real_f, Complex128>},
          {unary_loop<imag_f, Complex64>, unary_loop<imag_f, Complex128>},
          {unary_loop<complex_abs_f, Complex64>, unary_loop<complex_abs_f, Complex128>},
          {unary_loop<complex_angle_f, Complex64>, unary_loop<complex_angle_f, Complex128>},
          {load_row<bool>, load_row<uint8_t>, load_row<uint16_t>, load_row<uint32_t>, load_row<uint64_t>,
           load_row<int8_t>, load_row<int16_t>, load_row<int32_t>, load_row<int64_t>, load_row<E4M3Bits>,
           load_row<E5M2Bits>, load_row<Bf16Bits>, load_row<F16Bits>, load_row<float>, load_row<double>,
           load_row<Complex64>, load_row<Complex128>},
          {narrow_loop<E4M3Bits>, narrow_loop<E5M2Bits>, narrow_loop<Bf16Bits>, narrow_loop<F16Bits>,
           narrow_loop<int8_t>, narrow_loop<int16_t>, narrow_loop<uint16_t>},
          {round_loop<E4M3Bits>, round_loop<E5M2Bits>, round_loop<Bf16Bits>, round_loop<F16Bits>, round_loop<int8_t>,
           round_loop<int16_t>, round_loop<uint16_t>},
          make_norm_loops<float>(),
          make_norm_loops<double>()};
}

}  // namespace
}  // namespace lockstep
