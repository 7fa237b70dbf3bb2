// Conversions of 16-bit floats, to nearest with ties to even, and of 8-bit floats. Safe from any thread.
#pragma once

#include <cstdint>

namespace emulated {

inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }

inline float from_bf16(uint16_t bits) { return float_of(uint32_t{bits} << 16); }
inline uint16_t to_bf16(float x) {
  const uint32_t u = bits_of(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31, size = bits & 0x7fffu;
  if (size >= 0x7c00u) return float_of(sign | 0x7f800000u | (size & 0x3ffu) << 13);
  // The exponent is 112 less than that of f32; this also holds for subnormals.
  return float_of(sign | bits_of(float_of(size << 13) * 0x1p112f));
}
inline uint16_t to_f16(float x) {
  const uint32_t u = bits_of(x), sign = u >> 31 << 15, size = u & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7fffu;
  if (size >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  // Subnormal: adding 0.5 leaves the significant bits, rounded.
  if (size < 0x38800000u) return static_cast<uint16_t>(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(sign | (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13);
}

// e5m2 is the upper half of f16. e4m3 has one exponent bit less and no infinity.
inline float from_e5m2(uint8_t bits) { return from_f16(static_cast<uint16_t>(bits << 8)); }
inline float from_e4m3(uint8_t bits) {
  if ((bits & 0x7fu) == 0x7fu) return float_of(0x7fc00000u);
  return from_f16(static_cast<uint16_t>((bits & 0x80u) << 8 | (bits & 0x7fu) << 7)) * 256;
}

}  // namespace emulated
