// BFloat16 and Float16: 16-bit floats that convert to and from float, rounding to nearest even. Plain values.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// 8 exponent bits, 7 mantissa bits: the upper half of a float.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE binary16: 5 exponent bits, 10 mantissa bits.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float x) {
    const auto u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    uint32_t h;
    if (magnitude > 0x7f800000u) {
      h = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
      h = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // subnormal: let the adder round at bit 2^-24
      h = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      h = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | h);
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
  }
};

}  // namespace lockstep
