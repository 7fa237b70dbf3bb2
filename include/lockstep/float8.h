// Float8E4M3 and Float8E5M2: 8-bit floats that convert to and from float, rounding to nearest even. Numbers beyond the
// largest finite one, infinities included, become that one; NaN stays NaN. Plain values.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// 4 exponent bits, 3 mantissa bits: up to 448, subnormals down to 2^-9, no infinities ("e4m3fn").
struct Float8E4M3 {
  static constexpr float kMax = 448;
  uint8_t bits = 0;

  Float8E4M3() = default;
  explicit Float8E4M3(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 24) & 0x80u, magnitude = u & 0x7fffffffu;
    uint32_t small;
    if (magnitude > 0x7f800000u) {
      small = 0x7fu;
    } else if (magnitude >= 0x43e00000u) {  // 448 or more
      small = 0x7eu;
    } else if (magnitude < 0x3c800000u) {  // subnormal: the adder rounds at bit 2^-9
      small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000u;
    } else {
      small = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
    }
    bits = static_cast<uint8_t>(sign | small);
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 20) * 0x1p120f));
  }
};

// 5 exponent bits, 2 mantissa bits: the upper half of an IEEE binary16, up to 57344, subnormals down to 2^-16.
struct Float8E5M2 {
  static constexpr float kMax = 57344;
  uint8_t bits = 0;

  Float8E5M2() = default;
  explicit Float8E5M2(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 24) & 0x80u, magnitude = u & 0x7fffffffu;
    uint32_t small;
    if (magnitude > 0x7f800000u) {
      small = 0x7fu;
    } else if (magnitude >= 0x47600000u) {  // 57344 or more
      small = 0x7bu;
    } else if (magnitude < 0x38800000u) {  // subnormal: the adder rounds at bit 2^-16
      small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p7f) - 0x43000000u;
    } else {
      small = (magnitude - 0x38000000u + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
    }
    bits = static_cast<uint8_t>(sign | small);
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (magnitude >= 0x7cu) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 3u) << 21));
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 21) * 0x1p112f));
  }
};

}  // namespace lockstep
