#include "lockstep/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Every 16-bit value survives conversion to float and back, and ties between neighbors round to even.
template <class Half>
void check_every_value(uint16_t infinity) {
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    Half low, high;
    low.bits = static_cast<uint16_t>(bits);
    high.bits = static_cast<uint16_t>(bits + 1);
    EXPECT_EQ(Half(static_cast<float>(low)).bits, low.bits);
    EXPECT_EQ(Half(-static_cast<float>(low)).bits, low.bits | 0x8000);
    if (bits + 1 == infinity) break;
    const float a = low, b = high, middle = a + (b - a) / 2;
    EXPECT_EQ(Half(middle).bits, bits % 2 == 0 ? low.bits : high.bits) << bits;
    EXPECT_EQ(Half(std::nextafter(middle, a)).bits, low.bits) << bits;
    EXPECT_EQ(Half(std::nextafter(middle, b)).bits, high.bits) << bits;
  }
}

TEST(Half, Float16RoundsToNearestEven) { check_every_value<Float16>(0x7c00); }
TEST(Half, BFloat16RoundsToNearestEven) { check_every_value<BFloat16>(0x7f80); }

TEST(Half, TooLargeBecomesInfinity) {
  EXPECT_EQ(static_cast<float>(Float16(65519.0f)), 65504.0f);
  EXPECT_EQ(static_cast<float>(Float16(65520.0f)), kInfinity);
  EXPECT_EQ(static_cast<float>(Float16(-kInfinity)), -kInfinity);
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::max())), kInfinity);
}

TEST(Half, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace lockstep
