// What kernels for the GPU include: the scalar functions of the elementwise ops, the very text that the CPU's loops are
// compiled from, and what that text takes from the standard library.
#include <string>

#include "ops/cuda/conv_image_text.h"
#include "ops/cuda/gemm_text.h"
#include "ops/cuda/machine_text.h"
#include "ops/cuda/row_product_text.h"
#include "ops/cuda/share_text.h"
#include "ops/cuda/text.h"

namespace lockstep {

// Made by the build from the files of those names.
extern const char* const kMathText;
extern const char* const kScalarText;

namespace {

constexpr const char* kCstdint = R"(#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define __builtin_ceil ::ceil
#define __builtin_ceilf ::ceilf
#define __builtin_copysignf ::copysignf
#define __builtin_cos ::cos
#define __builtin_erf ::erf
#define __builtin_erfc ::erfc
#define __builtin_exp ::exp
#define __builtin_expm1 ::expm1
#define __builtin_fabs ::fabs
#define __builtin_fabsf ::fabsf
#define __builtin_floor ::floor
#define __builtin_floorf ::floorf
#define __builtin_fmod ::fmod
#define __builtin_fmodf ::fmodf
#define __builtin_log ::log
#define __builtin_log1p ::log1p
#define __builtin_pow ::pow
#define __builtin_rint ::rint
#define __builtin_sin ::sin
#define __builtin_sqrt ::sqrt
#define __builtin_sqrtf ::sqrtf
#define __builtin_tanh ::tanh
#define __builtin_trunc ::trunc
#define __builtin_truncf ::truncf
#define __builtin_inff() __builtin_bit_cast(float, 0x7f800000u)
#define __builtin_nanf(text) __builtin_bit_cast(float, 0x7fc00000u)
#define __builtin_inf() __builtin_bit_cast(double, 0x7ff0000000000000ull)
#define __builtin_nan(text) __builtin_bit_cast(double, 0x7ff8000000000000ull)
)";

constexpr const char* kTypeTraits = R"(#pragma once
namespace std {
template <bool kFirst, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;
template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v = !is_floating_point_v<T>;
template <class T>
inline constexpr bool is_signed_v = T(-1) < T(0);
template <class T>
struct make_unsigned {
  using type = conditional_t<sizeof(T) == 8, unsigned long long, conditional_t<sizeof(T) == 4, unsigned int, unsigned char>>;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;
}  // namespace std
)";

// Elements in memory: a type each, which loads to the type that computes and is stored from it.
constexpr const char* kElements = R"(#pragma once
#include "machine.h"
#include "ops/loops/scalar.h"
namespace lockstep {
inline float load(bf16 x) { return math::from_bits(uint32_t(x.bits) << 16); }
inline float load(f16 x) { return from_half(x.bits); }
template <class T>
inline T load(T x) { return x; }

// Elements that lie side by side, beginning at a multiple of so many.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Side {
  T v[kCount];
};
template <class T>
using Four = Side<T, 4>;
// From where they lie, and to it; or one by one, where that is not memory but looks like it.
template <class T, int kCount, class From>
inline void read_side(Side<T, kCount>& x, const From& from, uint64_t i) {
#pragma unroll
  for (int q = 0; q < kCount; ++q) x.v[q] = from[i + q];
}
template <class T, int kCount>
inline void read_side(Side<T, kCount>& x, const T* const& from, uint64_t i) {
  x = *reinterpret_cast<const Side<T, kCount>*>(from + i);
}
template <class T, int kCount, class To>
inline void write_side(const To& to, uint64_t i, const Side<T, kCount>& x) {
#pragma unroll
  for (int q = 0; q < kCount; ++q) to[i + q] = x.v[q];
}
template <class T, int kCount>
inline void write_side(T* const& to, uint64_t i, const Side<T, kCount>& x) {
  *reinterpret_cast<Side<T, kCount>*>(to + i) = x;
}
// What of(i, x) computes, as if it lay in memory.
template <class T, class F>
struct Computed {
  F of;
  T operator[](uint32_t i) const { T x; of(i, x); return x; }
};
template <class T, class F>
inline Computed<T, F> computed(const F& of) { return {of}; }

template <class T>
struct Store {
  static T of(T x) { return x; }
};
template <>
struct Store<bf16> {
  static bf16 of(float x) { return {to_bf16(x)}; }
};
template <>
struct Store<f16> {
  static f16 of(float x) { return {to_half(x)}; }
};
template <class T, class R>
inline R rounded(R x) { return load(Store<T>::of(x)); }

// An element of type T, or a float that is rounded to it.
template <class T, class In>
inline float element_of(const In& x) {
  if constexpr (sizeof(In) > sizeof(T)) return rounded<T>(x);
  else return load(x);
}
}  // namespace lockstep
)";

#define UNARY(name, linear, dtypes, cost, expression, ...) \
  "template <class T> inline T " #name "_(T x) { return " #expression "; }\n"
#define PREDICATE(name, dtypes, cost, expression) \
  "template <class T> inline bool " #name "_(T x) { return " #expression "; }\n"
#define BINARY(name, linear, dtypes, cost, expression, ...) \
  "template <class T> inline T " #name "_(T a, T b) { return " #expression "; }\n"
#define COMPARE(name, dtypes, cost, expression) \
  "template <class T> inline bool " #name "_(T a, T b) { return " #expression "; }\n"
constexpr const char* kElementwise =
    "#pragma once\n#include \"elements.h\"\nnamespace lockstep {\n"
#include "ops/elementwise.def"
    "template <class T> inline T select_(bool p, T a, T b) { return p ? a : b; }\n"
    // Within two of the last bits of a float instead of half of one, in a few instructions instead of dozens: for what
    // is made of products whose factors were cut short.
    "template <class T> inline T quick_div_(T a, T b) { return div_(a, b); }\n"
    "template <class T> inline T quick_sqrt_(T x) { return sqrt_(x); }\n"
    "template <class T> inline T quick_tanh_(T x) { return tanh_(x); }\n"
    "template <> inline float quick_div_(float a, float b) { return full_div(a, b); }\n"
    "template <> inline float quick_sqrt_(float x) { return approx_sqrt(x); }\n"
    "template <> inline float quick_tanh_(float x) {\n"
    "  const float t = math::expm1_inside(2.0f * math::limit_magnitude(math::abs(x), 10.0f));\n"
    "  return math::keep_nan(math::copysign(full_div(t, t + 2.0f), x), x);\n"
    "}\n"
    "}\n";

}  // namespace

const std::vector<CudaHeader>& kernel_headers() {
  static const auto* const headers =
      new std::vector<CudaHeader>{{"cstdint", kCstdint},           {"type_traits", kTypeTraits},
                                  {"ops/math.h", kMathText},       {"ops/loops/scalar.h", kScalarText},
                                  {"machine.h", kMachineText},     {"elements.h", kElements},
                                  {"elementwise.h", kElementwise}, {"tiles.h", kTilesText},
                                  {"gemm.h", kGemmText},           {"row_product.h", kRowProductText},
                                  {"share.h", kShareText},         {"conv_image.h", kConvImageText}};
  return *headers;
}

CudaFunction kernel_of(const std::string& text, CudaLane& lane) { return CudaCode::get(lane, text, kernel_headers()); }
void begin_kernel(const std::string& text, CudaLane& lane) {
  CudaCode::compile_in_background(lane, text, kernel_headers());
}

}  // namespace lockstep
