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
