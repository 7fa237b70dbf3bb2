// The integers of 8, 16 and 64 bits: they wrap, and conversions saturate or wrap as cast() says.
#include "array/near.h"
#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

TEST(NarrowIntegers, WrapAfterEveryOperation) {
  const Array a = array({100, -100, 127, -128}, i8);
  EXPECT_TEXT(a + a, "i8[4] [-56, 56, -2, 0]");
  EXPECT_TEXT((a + a) / 2, "f32[4] [-28, 28, -1, 0]");
  EXPECT_TEXT(floor_divide(a + a, 2), "i8[4] [-28, 28, -1, 0]");
  EXPECT_TEXT(-a, "i8[4] [-100, 100, -127, -128]");
  EXPECT_TEXT(abs(a), "i8[4] [100, 100, 127, -128]");
  EXPECT_TEXT(a * a, "i8[4] [16, 16, 1, 0]");
  EXPECT_TEXT(a << 1, "i8[4] [-56, 56, -2, 0]");
  EXPECT_TEXT(a >> 1, "i8[4] [50, -50, 63, -64]");
  EXPECT_TEXT(~a, "i8[4] [-101, 99, -128, 127]");
  const Array b = array({65535, 256, 1}, u16);
  EXPECT_TEXT(b * b, "u16[3] [1, 0, 1]");
  EXPECT_TEXT(b + 1, "u16[3] [0, 257, 2]");
  EXPECT_TEXT(-b, "u16[3] [1, 65280, 65535]");
  EXPECT_TEXT(b > 255, "bool[3] [true, true, false]");
  EXPECT_TEXT(jit([](const Array& x) { return (x + x) / 2 == astype(x, f32); })(b), "bool[3] [false, true, true]");
  EXPECT_TEXT(array({32767, -32768}, i16) + 1, "i16[2] [-32768, -32767]");
}

TEST(U64, HoldsAllBits) {
  const Array a = Array::from(std::vector<uint64_t>{0, 1, uint64_t{1} << 63, ~uint64_t{0}}, {4});
  EXPECT_TEXT(a, "u64[4] [0, 1, 9223372036854775808, 18446744073709551615]");
  EXPECT_TEXT(a + 1, "u64[4] [1, 2, 9223372036854775809, 0]");
  EXPECT_TEXT(a >> 1, "u64[4] [0, 0, 4611686018427387904, 9223372036854775807]");
  EXPECT_TEXT(a > 1, "bool[4] [false, false, true, true]");
  EXPECT_TEXT(max(a), "u64[] 18446744073709551615");
  EXPECT_TEXT(floor_divide(a, 3), "u64[4] [0, 0, 3074457345618258602, 6148914691236517205]");
  EXPECT_EQ((a + array({1}, i32)).dtype(), f32);
  EXPECT_EQ(a.to_vector<uint64_t>()[3], ~uint64_t{0});
}

TEST(Conversions, FloatsSaturateAndIntegersWrap) {
  const Array x = array({-1e30, -129.5, -1.9, 300.0, 70000.0, 1e30, std::nan("")}, f64);
  EXPECT_TEXT(astype(x, i8), "i8[7] [-128, -128, -1, 127, 127, 127, 0]");
  EXPECT_TEXT(astype(x, i16), "i16[7] [-32768, -129, -1, 300, 32767, 32767, 0]");
  EXPECT_TEXT(astype(x, u16), "u16[7] [0, 0, 0, 300, 65535, 65535, 0]");
  EXPECT_TEXT(astype(x, u64), "u64[7] [0, 0, 0, 300, 70000, 18446744073709551615, 0]");
  EXPECT_TEXT(astype(astype(x, f32), i8), "i8[7] [-128, -128, -1, 127, 127, 127, 0]");
  const Array n = array({-1, 300, 70000, -129});
  EXPECT_TEXT(astype(n, i8), "i8[4] [-1, 44, 112, 127]");
  EXPECT_TEXT(astype(n, u16), "u16[4] [65535, 300, 4464, 65407]");
  EXPECT_TEXT(astype(n, u64), "u64[4] [18446744073709551615, 300, 70000, 18446744073709551487]");
  EXPECT_TEXT(astype(astype(n, i8), f32), "f32[4] [-1, 44, 112, 127]");
  EXPECT_TEXT(astype(astype(n, u64), i16), "i16[4] [-1, 300, 4464, -129]");
  EXPECT_TEXT(astype(astype(n, boolean), i8), "i8[4] [1, 1, 1, 1]");
}

TEST(NarrowIntegers, ReduceSortAndMultiply) {
  const Array a = array({100, -100, 127, 100}, i8);
  EXPECT_TEXT(sum(a), "i32[] 227");
  EXPECT_TEXT(max(a), "i8[] 127");
  EXPECT_TEXT(sort(a), "i8[4] [-100, 100, 100, 127]");
  EXPECT_TEXT(argmax(a), "i32[] 2");
  EXPECT_TEXT(dot(a, a), "i8[] 49");  // 46129 modulo 256
  EXPECT_TEXT(cumsum(array({200, 200}, u16), 0), "u16[2] [200, 400]");
  EXPECT_TEXT(scatter_add(zeros({2}, u64), array({1, 1}), array({3, 4}, u64)), "u64[2] [0, 7]");
  EXPECT_TEXT(take(array({10, 20, 30}), array({-1, 1}, i8)), "i32[2] [30, 20]");
  EXPECT_TEXT(arange(3, i8), "i8[3] [0, 1, 2]");
  EXPECT_THROWS(array({128}, i8), Error, "128 is out of range for i8 (-128 to 127)");
  EXPECT_THROWS(ones({1}, u16) + 70000, Error, "70000 is out of range for u16 (0 to 65535)");
}

TEST(Integers, NegativePowersOfIntegersAreErrors) {
  const char* wanted =
      "pow: integers i32[2] to the negative power -1; use float_power, or convert the base with astype(x, f32)";
  EXPECT_THROWS(pow(array({2, 3}), -1), Error, wanted);
  EXPECT_THROWS(power(array({2, 3}), Array(-1)), Error, wanted);
  EXPECT_THROWS(jit([](Array x) { return pow(x, -1); })(array({2, 3})), Error, wanted);
  EXPECT_THROWS(pow(Array(2), -3), Error, "pow: integers i32[] to the negative power -3");
  EXPECT_TEXT(float_power(array({2, 4}), -1), "f32[2] [0.5, 0.25]");
  EXPECT_TEXT(pow(array({2, 4}), -1.f), "f32[2] [0.5, 0.25]");
  EXPECT_TEXT(pow(array({2.f, 4.f}), -1), "f32[2] [0.5, 0.25]");
  EXPECT_TEXT(pow(array({2, 1, -1}), array({-1, -1, -1})), "i32[3] [0, 1, -1]");
}

}  // namespace
}  // namespace lockstep
