#include "lockstep/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr float kLargerThanAll = std::numeric_limits<float>::infinity();

// The value of a code by the definition of the formats: (-1)^s 2^(e - bias) 1.m, or 2^(1 - bias) 0.m for e = 0.
float defined_value(uint32_t code, int mantissa_bits, int bias) {
  const uint32_t exponent = (code & 0x7fu) >> mantissa_bits, mantissa = code & ((1u << mantissa_bits) - 1);
  const float fraction = std::ldexp(static_cast<float>(mantissa), -mantissa_bits);
  const float size =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, static_cast<int>(exponent) - bias);
  return (code & 0x80u) != 0 ? -size : size;
}

template <class T>
T of_code(uint32_t code) {
  T out;
  out.bits = static_cast<uint8_t>(code);
  return out;
}

TEST(Float8, All256CodesOfE4M3HaveTheirDefinedValues) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float x = of_code<Float8E4M3>(code);
    if ((code & 0x7fu) == 0x7fu)
      EXPECT_TRUE(std::isnan(x)) << code;
    else
      EXPECT_EQ(x, defined_value(code, 3, 7)) << code;
    EXPECT_EQ(std::signbit(x), code >= 128) << code;
  }
  EXPECT_EQ(static_cast<float>(of_code<Float8E4M3>(0x7e)), 448.0f);
  EXPECT_EQ(static_cast<float>(of_code<Float8E4M3>(0x01)), 0x1p-9f);
  EXPECT_EQ(static_cast<float>(of_code<Float8E4M3>(0x08)), 0x1p-6f);
}

TEST(Float8, All256CodesOfE5M2HaveTheirDefinedValues) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float x = of_code<Float8E5M2>(code);
    const uint32_t size = code & 0x7fu;
    if (size > 0x7cu)
      EXPECT_TRUE(std::isnan(x)) << code;
    else
      EXPECT_EQ(std::abs(x), size == 0x7cu ? kLargerThanAll : std::abs(defined_value(code, 2, 15))) << code;
    EXPECT_EQ(std::signbit(x), code >= 128) << code;
  }
  EXPECT_EQ(static_cast<float>(of_code<Float8E5M2>(0x7b)), 57344.0f);
  EXPECT_EQ(static_cast<float>(of_code<Float8E5M2>(0x01)), 0x1p-16f);
  EXPECT_EQ(static_cast<float>(of_code<Float8E5M2>(0x04)), 0x1p-14f);
}

// Every finite value survives conversion to float and back, and ties between neighbors round to even.
template <class T>
void check_rounding(uint32_t largest) {
  for (uint32_t code = 0; code <= largest; ++code) {
    const float a = of_code<T>(code);
    EXPECT_EQ(T(a).bits, code);
    EXPECT_EQ(T(-a).bits, code | 0x80u);
    if (code == largest) break;
    const float b = of_code<T>(code + 1), middle = a + (b - a) / 2;
    EXPECT_EQ(T(middle).bits, code % 2 == 0 ? code : code + 1) << code;
    EXPECT_EQ(T(std::nextafter(middle, a)).bits, code) << code;
    EXPECT_EQ(T(std::nextafter(middle, b)).bits, code + 1) << code;
  }
}

TEST(Float8, E4M3RoundsToNearestEven) { check_rounding<Float8E4M3>(0x7e); }
TEST(Float8, E5M2RoundsToNearestEven) { check_rounding<Float8E5M2>(0x7b); }

TEST(Float8, TooLargeBecomesTheLargestFinite) {
  for (const float x : {449.0f, 464.0f, 1e30f, kLargerThanAll}) {
    EXPECT_EQ(static_cast<float>(Float8E4M3(x)), 448.0f);
    EXPECT_EQ(static_cast<float>(Float8E4M3(-x)), -448.0f);
  }
  for (const float x : {57345.0f, 61440.0f, 65536.0f, kLargerThanAll}) {
    EXPECT_EQ(static_cast<float>(Float8E5M2(x)), 57344.0f);
    EXPECT_EQ(static_cast<float>(Float8E5M2(-x)), -57344.0f);
  }
}

TEST(Float8, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8E4M3(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8E5M2(-nan))));
}

}  // namespace
}  // namespace lockstep
