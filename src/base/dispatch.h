// Dispatch from a DType at run time to a C++ type. Pure functions, safe from any thread.
#pragma once

#include <complex>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "lockstep/dtype.h"

namespace lockstep {

// Returns f.template operator()<T>(), where T is the C++ type of `dtype`. REQUIRES: not an 8-bit float: nothing is computed
// with these; not complex.
template <class F>
decltype(auto) with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean:
      return f.template operator()<bool>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::u16:
      return f.template operator()<uint16_t>();
    case DType::u32:
      return f.template operator()<uint32_t>();
    case DType::u64:
      return f.template operator()<uint64_t>();
    case DType::i8:
      return f.template operator()<int8_t>();
    case DType::i16:
      return f.template operator()<int16_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::f16:
      return f.template operator()<Float16>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f64:
    case DType::c64:
    case DType::c128:
      break;
  }
  LOCKSTEP_CHECK(dtype == DType::f64, "arithmetic with {}", name(dtype));
  return f.template operator()<double>();
}

// The same for all types.
template <class F>
decltype(auto) with_stored_dtype(DType dtype, F&& f) {
  if (dtype == DType::f8_e4m3) return f.template operator()<Float8E4M3>();
  if (dtype == DType::f8_e5m2) return f.template operator()<Float8E5M2>();
  if (dtype == DType::c64) return f.template operator()<std::complex<float>>();
  if (dtype == DType::c128) return f.template operator()<std::complex<double>>();
  return with_dtype(dtype, std::forward<F>(f));
}

// Whether T is std::complex of float or double.
template <class T>
inline constexpr bool is_complex_type =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
// Whether T is an integer whose products are computed in i32 (i8, i16, u16) or i64 (u64).
template <class T>
inline constexpr bool is_converted_integer = std::is_same_v<T, int8_t> || std::is_same_v<T, int16_t> ||
                                             std::is_same_v<T, uint16_t> || std::is_same_v<T, uint64_t>;
// Whether T is an 8-bit float.
template <class T>
inline constexpr bool is_float8_type = std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
// Whether T is a 16-bit float, whose arithmetic is done in float.
template <class T>
inline constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// Rounds x to the nearest value of `dtype`, or of its real part. REQUIRES: dtype is floating or complex.
inline double round_to(DType dtype, double x) {
  switch (dtype) {
    case DType::f8_e4m3:
      return static_cast<float>(Float8E4M3(static_cast<float>(x)));
    case DType::f8_e5m2:
      return static_cast<float>(Float8E5M2(static_cast<float>(x)));
    case DType::bf16:
      return static_cast<float>(BFloat16(static_cast<float>(x)));
    case DType::f16:
      return static_cast<float>(Float16(static_cast<float>(x)));
    case DType::f32:
    case DType::c64:
      return static_cast<float>(x);
    default:
      return x;
  }
}

}  // namespace lockstep
