// Conversions between f32 and the bits of 8-bit floats, as those of Float8E4M3 and Float8E5M2 (lockstep/float8.h), without
// branches: loops over them are vectorized, and GPU kernels use them. Pure functions, safe from any thread, with internal
// linkage (see ops/math.h).
#pragma once

#include <cstdint>

#include "ops/math.h"

namespace lockstep::math {

LOCKSTEP_INLINE float from_e4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24, magnitude = code & 0x7fu;
  // The exponent is 120 less than that of f32; this also holds for subnormals.
  const uint32_t finite = bits(from_bits(magnitude << 20) * 0x1p120f);
  return from_bits(sign | (magnitude == 0x7fu ? 0x7fc00000u : finite));
}
LOCKSTEP_INLINE float from_e5m2(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24, magnitude = code & 0x7fu;
  const uint32_t finite = bits(from_bits(magnitude << 21) * 0x1p112f);
  return from_bits(sign | (magnitude >= 0x7cu ? 0x7f800000u | ((magnitude & 3u) << 21) : finite));
}

LOCKSTEP_INLINE uint8_t to_e4m3(float x) {
  const uint32_t u = bits(x), magnitude = u & 0x7fffffffu;
  // Below the normal range the adder rounds at bit 2^-9.
  const uint32_t subnormal = bits(from_bits(magnitude) + 0x1p14f) - 0x46800000u;
  const uint32_t normal = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  const uint32_t finite = magnitude < 0x3c800000u ? subnormal : normal;
  const uint32_t large = magnitude > 0x7f800000u ? 0x7fu : 0x7eu;
  return static_cast<uint8_t>(((u >> 24) & 0x80u) | (magnitude >= 0x43e00000u ? large : finite));
}
LOCKSTEP_INLINE uint8_t to_e5m2(float x) {
  const uint32_t u = bits(x), magnitude = u & 0x7fffffffu;
  // Below the normal range the adder rounds at bit 2^-16.
  const uint32_t subnormal = bits(from_bits(magnitude) + 0x1p7f) - 0x43000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  const uint32_t large = magnitude > 0x7f800000u ? 0x7fu : 0x7bu;
  return static_cast<uint8_t>(((u >> 24) & 0x80u) | (magnitude >= 0x47600000u ? large : finite));
}

}  // namespace lockstep::math
