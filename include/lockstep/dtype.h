// DType: the element types of arrays, their names, sizes and promotion. Immutable values, safe to use from
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/float8.h"
#include "lockstep/half.h"

namespace lockstep {

// The 8-bit floats are only stored: ops move and convert them, and products of nn::Linear multiply them.
enum class DType : uint8_t { boolean, u8, i32, i64, u32, f8_e4m3, f8_e5m2, bf16, f16, f32, f64 };
inline constexpr int kDTypeCount = 11;

inline constexpr DType boolean = DType::boolean;
inline constexpr DType u8 = DType::u8;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType u32 = DType::u32;
inline constexpr DType f8_e4m3 = DType::f8_e4m3;
inline constexpr DType f8_e5m2 = DType::f8_e5m2;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f16 = DType::f16;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;

// "bool", "u8", "i32", "i64", "u32", "f8_e4m3", "f8_e5m2", "bf16", "f16", "f32", "f64".
std::string_view name(DType);
std::optional<DType> dtype_from_name(std::string_view);
int64_t size_of(DType);

constexpr bool is_floating(DType t) { return t >= DType::f8_e4m3; }
constexpr bool is_float8(DType t) { return t == DType::f8_e4m3 || t == DType::f8_e5m2; }
constexpr bool is_integer(DType t) { return t >= DType::u8 && t <= DType::u32; }
constexpr bool is_signed(DType t) { return t == DType::i32 || t == DType::i64 || is_floating(t); }

// The element type of an operation on a and b, by bool < integers < f8_e4m3, f8_e5m2 < bf16, f16 < f32 < f64. An
// integer and a float give that float; u32 and i32 give i64; bf16 and f16 give f32; the two 8-bit floats give bf16.
DType promote(DType a, DType b);

// The DType of a C++ type: dtype_of<float> is f32.
template <class T>
struct DTypeOf {
  static_assert(sizeof(T) == 0,
                "an array holds bool, uint8_t, int32_t, int64_t, uint32_t, Float8E4M3, Float8E5M2, BFloat16, Float16, "
                "float or double");
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct DTypeOf<Float8E4M3> {
  static constexpr DType value = DType::f8_e4m3;
};
template <>
struct DTypeOf<Float8E5M2> {
  static constexpr DType value = DType::f8_e5m2;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>  // whichever of long and long long is not int64_t
struct DTypeOf<std::conditional_t<std::is_same_v<int64_t, long>, long long, long>> {
  static constexpr DType value = DType::i64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace lockstep
