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

// The 8-bit floats are only stored: ops move and convert them, and products of nn::Linear multiply them. The DTypes of
// std::complex are in lockstep/complex.h.
enum class DType : uint8_t {
  boolean,
  u8,
  u16,
  u32,
  u64,
  i8,
  i16,
  i32,
  i64,
  f8_e4m3,
  f8_e5m2,
  bf16,
  f16,
  f32,
  f64,
  c64,
  c128
};
inline constexpr int kDTypeCount = 17;

inline constexpr DType boolean = DType::boolean;
inline constexpr DType u8 = DType::u8;
inline constexpr DType u16 = DType::u16;
inline constexpr DType u32 = DType::u32;
inline constexpr DType u64 = DType::u64;
inline constexpr DType i8 = DType::i8;
inline constexpr DType i16 = DType::i16;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType f8_e4m3 = DType::f8_e4m3;
inline constexpr DType f8_e5m2 = DType::f8_e5m2;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f16 = DType::f16;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
// Complex numbers of two f32, and of two f64.
inline constexpr DType c64 = DType::c64;
inline constexpr DType c128 = DType::c128;
inline constexpr DType complex64 = DType::c64;
inline constexpr DType complex128 = DType::c128;

// "bool", "u8", ..., "u64", "i8", ..., "i64", "f8_e4m3", "f8_e5m2", "bf16", "f16", "f32", "f64", "c64", "c128".
std::string_view name(DType);
std::optional<DType> dtype_from_name(std::string_view);
int64_t size_of(DType);

constexpr bool is_complex(DType t) { return t >= DType::c64; }
constexpr bool is_floating(DType t) { return t >= DType::f8_e4m3 && t <= DType::f64; }
// Whether gradients flow through arrays of this type: floats and complex numbers.
constexpr bool is_inexact(DType t) { return t >= DType::f8_e4m3; }
constexpr bool is_float8(DType t) { return t == DType::f8_e4m3 || t == DType::f8_e5m2; }
constexpr bool is_integer(DType t) { return t >= DType::u8 && t <= DType::i64; }
constexpr bool is_unsigned(DType t) { return t >= DType::u8 && t <= DType::u64; }
constexpr bool is_signed(DType t) { return t >= DType::i8; }

// The type of the parts of a complex number; other types are their own.
constexpr DType real_of(DType t) { return t == DType::c64 ? DType::f32 : t == DType::c128 ? DType::f64 : t; }
// The complex type that holds this type: c128 for f64 and c128, otherwise c64.
constexpr DType complex_of(DType t) { return t == DType::f64 || t == DType::c128 ? DType::c128 : DType::c64; }

// The element type of an operation on a and b: JAX's table. bool < integers < f8_e4m3, f8_e5m2 < bf16, f16 < f32 < f64,
// and complex numbers last. An integer and a float give that float. An unsigned and a signed integer give the smallest
// signed integer that holds both; there is none for u64, which gives f32, the default float (f64 in JAX with 64 bits
// enabled). bf16 and f16 give f32; the two 8-bit floats give bf16; f64 and c64 give c128.
DType promote(DType a, DType b);

// The DType of a C++ type: dtype_of<float> is f32.
template <class T>
struct DTypeOf {
  static_assert(sizeof(T) == 0,
                "an array holds bool, an integer of 8 to 64 bits, Float8E4M3, Float8E5M2, BFloat16, Float16, float, "
                "double, std::complex<float> or std::complex<double> (lockstep/complex.h)");
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
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType value = DType::u64;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::i16;
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
template <>
struct DTypeOf<std::conditional_t<std::is_same_v<uint64_t, unsigned long>, unsigned long long, unsigned long>> {
  static constexpr DType value = DType::u64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace lockstep
