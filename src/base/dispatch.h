// Dispatch from a DType at run time to a C++ type. Pure functions, safe from any thread.
#pragma once

#include <type_traits>

#include "base/check.h"
#include "lockstep/dtype.h"

namespace lockstep {

// Returns f.template operator()<T>(), where T is the C++ type of `dtype`.
template <class F>
decltype(auto) with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean:
      return f.template operator()<bool>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::u32:
      return f.template operator()<uint32_t>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::f16:
      return f.template operator()<Float16>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      break;
  }
  LOCKSTEP_CHECK(dtype == DType::f64);
  return f.template operator()<double>();
}

// Whether T is a 16-bit float, whose arithmetic is done in float.
template <class T>
inline constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

// Rounds x to the nearest value of `dtype`. REQUIRES: dtype is floating.
inline double round_to(DType dtype, double x) {
  switch (dtype) {
    case DType::bf16:
      return static_cast<float>(BFloat16(static_cast<float>(x)));
    case DType::f16:
      return static_cast<float>(Float16(static_cast<float>(x)));
    case DType::f32:
      return static_cast<float>(x);
    default:
      return x;
  }
}

}  // namespace lockstep
