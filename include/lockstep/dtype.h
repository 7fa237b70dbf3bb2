// Element types: their names, sizes, kinds and how two of them meet. Immutable values, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/half.h"

namespace lockstep {

enum class DType : uint8_t { boolean, u8, i32, i64, u32, bf16, f16, f32, f64 };
inline constexpr int kDTypeCount = 9;

inline constexpr DType boolean = DType::boolean;
inline constexpr DType u8 = DType::u8;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType u32 = DType::u32;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f16 = DType::f16;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;

// "bool", "u8", "i32", "i64", "u32", "bf16", "f16", "f32", "f64".
std::string_view name(DType);
std::optional<DType> dtype_from_name(std::string_view);
int64_t size_of(DType);

constexpr bool is_floating(DType t) { return t >= DType::bf16; }
constexpr bool is_integer(DType t) { return t >= DType::u8 && t <= DType::u32; }
constexpr bool is_signed(DType t) { return t == DType::i32 || t == DType::i64 || is_floating(t); }

// The type in which a and b meet: bool < integers < bf16, f16 < f32 < f64. An integer meets a float in that float; u32
// meets i32 in i64; bf16 meets f16 in f32.
DType promote(DType a, DType b);

// C++ type <-> DType.
template <class T>
struct DTypeOf {
  static_assert(sizeof(T) == 0,
                "an array holds bool, uint8_t, int32_t, int64_t, uint32_t, BFloat16, Float16, float or double");
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
template <>  // the one of long and long long that int64_t is not
struct DTypeOf<std::conditional_t<std::is_same_v<int64_t, long>, long long, long>> {
  static constexpr DType value = DType::i64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace lockstep
