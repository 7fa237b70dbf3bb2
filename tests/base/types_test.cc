#include "base/check.h"
#include "base/throws.h"
#include "lockstep/dtype.h"
#include "lockstep/shape.h"

namespace lockstep {
namespace {

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name(t)), t);
  }
  EXPECT_EQ(dtype_from_name("float"), std::nullopt);
}

TEST(DType, SizesEqualThoseOfTheCppTypes) {
  EXPECT_EQ(size_of(dtype_of<bool>), 1);
  EXPECT_EQ(size_of(dtype_of<uint8_t>), 1);
  EXPECT_EQ(size_of(dtype_of<Float8E4M3>), static_cast<int64_t>(sizeof(Float8E4M3)));
  EXPECT_EQ(size_of(dtype_of<Float8E5M2>), static_cast<int64_t>(sizeof(Float8E5M2)));
  EXPECT_EQ(size_of(dtype_of<BFloat16>), static_cast<int64_t>(sizeof(BFloat16)));
  EXPECT_EQ(size_of(dtype_of<Float16>), static_cast<int64_t>(sizeof(Float16)));
  EXPECT_EQ(size_of(dtype_of<float>), 4);
  EXPECT_EQ(size_of(dtype_of<int64_t>), 8);
}

TEST(DType, PromotionIsCommutativeAndKeepsEqualTypes) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto a = static_cast<DType>(i);
    EXPECT_EQ(promote(a, a), a);
    for (int j = 0; j < i; ++j) EXPECT_EQ(promote(a, static_cast<DType>(j)), promote(static_cast<DType>(j), a));
  }
}

// The table of JAX's documentation of type promotion, with its default float for u64 and a signed integer: f32 here.
TEST(DType, PromotionIsThatOfJax) {
  constexpr DType kTypes[] = {boolean, u8, u16, u32, u64, i8, i16, i32, i64, bf16, f16, f32, f64, c64, c128};
  constexpr DType kTable[][std::size(kTypes)] = {
      // clang-format off
      {boolean, u8, u16, u32, u64, i8, i16, i32, i64, bf16, f16, f32, f64, c64, c128},
      {u8, u8, u16, u32, u64, i16, i16, i32, i64, bf16, f16, f32, f64, c64, c128},
      {u16, u16, u16, u32, u64, i32, i32, i32, i64, bf16, f16, f32, f64, c64, c128},
      {u32, u32, u32, u32, u64, i64, i64, i64, i64, bf16, f16, f32, f64, c64, c128},
      {u64, u64, u64, u64, u64, f32, f32, f32, f32, bf16, f16, f32, f64, c64, c128},
      {i8, i16, i32, i64, f32, i8, i16, i32, i64, bf16, f16, f32, f64, c64, c128},
      {i16, i16, i32, i64, f32, i16, i16, i32, i64, bf16, f16, f32, f64, c64, c128},
      {i32, i32, i32, i64, f32, i32, i32, i32, i64, bf16, f16, f32, f64, c64, c128},
      {i64, i64, i64, i64, f32, i64, i64, i64, i64, bf16, f16, f32, f64, c64, c128},
      {bf16, bf16, bf16, bf16, bf16, bf16, bf16, bf16, bf16, bf16, f32, f32, f64, c64, c128},
      {f16, f16, f16, f16, f16, f16, f16, f16, f16, f32, f16, f32, f64, c64, c128},
      {f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f32, f64, c64, c128},
      {f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, f64, c128, c128},
      {c64, c64, c64, c64, c64, c64, c64, c64, c64, c64, c64, c64, c128, c64, c128},
      {c128, c128, c128, c128, c128, c128, c128, c128, c128, c128, c128, c128, c128, c128, c128},
      // clang-format on
  };
  for (size_t a = 0; a < std::size(kTypes); ++a)
    for (size_t b = 0; b < std::size(kTypes); ++b)
      EXPECT_EQ(name(promote(kTypes[a], kTypes[b])), name(kTable[a][b])) << name(kTypes[a]) << ", " << name(kTypes[b]);
}

TEST(DType, KindsAreRanges) {
  for (const DType t : {u8, u16, u32, u64}) EXPECT_TRUE(is_integer(t) && is_unsigned(t) && !is_signed(t)) << name(t);
  for (const DType t : {i8, i16, i32, i64}) EXPECT_TRUE(is_integer(t) && !is_unsigned(t) && is_signed(t)) << name(t);
  for (const DType t : {f8_e4m3, f8_e5m2, bf16, f16, f32, f64})
    EXPECT_TRUE(is_floating(t) && is_inexact(t) && is_signed(t) && !is_integer(t) && !is_complex(t)) << name(t);
  for (const DType t : {c64, c128}) EXPECT_TRUE(is_complex(t) && is_inexact(t) && !is_floating(t)) << name(t);
  EXPECT_FALSE(is_integer(boolean) || is_signed(boolean) || is_inexact(boolean));
  EXPECT_EQ(real_of(c128), f64);
  EXPECT_EQ(complex_of(bf16), c64);
  EXPECT_EQ(complex64, c64);
}

TEST(DType, PromotionFollowsTheDocumentation) {
  EXPECT_EQ(promote(boolean, u8), u8);
  EXPECT_EQ(promote(u8, i32), i32);
  EXPECT_EQ(promote(u32, i32), i64);
  EXPECT_EQ(promote(i64, bf16), bf16);
  EXPECT_EQ(promote(bf16, f16), f32);
  EXPECT_EQ(promote(f8_e4m3, f8_e5m2), bf16);
  EXPECT_EQ(promote(f16, f8_e5m2), f16);
  EXPECT_EQ(promote(i64, f8_e4m3), f8_e4m3);
  EXPECT_EQ(promote(f32, f64), f64);
  EXPECT_EQ(promote(f8_e4m3, c64), c64);
}

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(count({}), 1);
  EXPECT_EQ(count({2, 3, 4}), 24);
  EXPECT_EQ(count({int64_t{1} << 40, 0, int64_t{1} << 40}), 0);
  EXPECT_EQ(to_string(Shape{128, 784}), "[128, 784]");
  EXPECT_EQ(to_string(Type{f32, {128, 784}}), "f32[128,784]");
  EXPECT_EQ((Type{bf16, {3, 5}}).bytes(), 30);
}

TEST(Shape, RejectsTooManyElements) {
  EXPECT_THROWS(count({3, -1}), Error, "extent -1 in [3, -1] is negative");
  EXPECT_THROWS(count({int64_t{1} << 40, int64_t{1} << 40}), Error, "more than 2^58 elements");
}

TEST(CheckDeathTest, PrintsLocationAndMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int two = 2;
  EXPECT_DEATH(LOCKSTEP_CHECK(two == 3, "two is {}", two),
               "internal error at .*types_test.cc:[0-9]+: two == 3: two is 2");
}

}  // namespace
}  // namespace lockstep
