#include "lockstep/numeric.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

constexpr float kNumericInf = std::numeric_limits<float>::infinity(),
                kNumericNan = std::numeric_limits<float>::quiet_NaN();

TEST(Rounding, GoesInEveryDirection) {
  const Array x = array({-1.5f, -0.5f, 0.5f, 1.5f, 2.5f});
  EXPECT_ELEMENTS(trunc(x), {-1, 0, 0, 1, 2}, 0);
  EXPECT_ELEMENTS(rint(x), {-2, 0, 0, 2, 2}, 0);
  EXPECT_TEXT(fix(array({-3, 4})), "i32[2] [-3, 4]");
  EXPECT_TEXT(rint(array({-3, 4})), "f32[2] [-3, 4]");
  EXPECT_ELEMENTS(round(array({3.14159f, -2.675f}), 2), {3.14, -2.68}, 1e-2);
  EXPECT_ELEMENTS(round(array({1234.0f}), -2), {1200}, 0);
  EXPECT_THROWS(round(array({123}), -1), Error, "round: -1 decimals of i32[1]");
  const auto [fraction, whole] = modf(array({2.75f, -2.75f}));
  EXPECT_TEXT(fraction, "f32[2] [0.75, -0.75]");
  EXPECT_TEXT(whole, "f32[2] [2, -2]");
}

TEST(Division, HasRemaindersOfBothSigns) {
  const Array a = array({-7, 7, -7, 7}), b = array({3, -3, -3, 3});
  EXPECT_TEXT(mod(a, b), "i32[4] [2, -2, -1, 1]");
  EXPECT_TEXT(fmod(a, b), "i32[4] [-1, 1, -1, 1]");
  const auto [q, r] = divmod(astype(a, f32), b);
  EXPECT_TEXT(q, "f32[4] [-3, -3, 2, 2]");
  EXPECT_TEXT(r, "f32[4] [2, -2, -1, 1]");
  EXPECT_ELEMENTS(reciprocal(array({4, 5})), {0.25, 0.2}, 1e-7);
  EXPECT_ELEMENTS(float_power(array({2, 3}), 2), {4, 9}, 1e-5);
}

TEST(Gcd, AgreesWithTheStandardLibrary) {
  const Array a = array({0, 12, -18, 17, 2147483647, 1836311903}), b = array({0, 18, 12, 5, 2147483647, 1134903170});
  std::vector<double> wanted;
  for (size_t i = 0; i < 6; ++i) {
    const int64_t x = a.to_vector<int64_t>()[i], y = b.to_vector<int64_t>()[i];
    wanted.push_back(static_cast<double>(std::gcd(x, y)));
  }
  EXPECT_ELEMENTS(gcd(a, b), wanted, 0);
  EXPECT_ELEMENTS(jit(gcd)(a, b), wanted, 0);
  EXPECT_TEXT(lcm(array({0, 4, -6}), array({5, 6, 4})), "i32[3] [0, 12, 12]");
  EXPECT_TEXT(gcd(array({{4}, {6}}), array({6, 9})), "i32[2,2] [[2, 1], [6, 3]]");
  EXPECT_THROWS(gcd(array({1.0f}), 2), Error, "gcd: the operand is f32[1]; it must be an integer");
}

TEST(Extremes, IgnoreNanInFmaxAndFmin) {
  const Array a = array({1.0f, kNumericNan, 3.0f, kNumericNan}), b = array({2.0f, 2.0f, kNumericNan, kNumericNan});
  EXPECT_TEXT(isnan(fmax(a, b)), "bool[4] [false, false, false, true]");
  EXPECT_ELEMENTS(nan_to_num(fmax(a, b)), {2, 2, 3, 0}, 0);
  EXPECT_ELEMENTS(nan_to_num(fmin(a, b)), {1, 2, 3, 0}, 0);
}

TEST(Clip, TakesOneBound) {
  const Array x = array({-5, 0, 5});
  EXPECT_TEXT(clip(x, {.min = -1}), "i32[3] [-1, 0, 5]");
  EXPECT_TEXT(clip(x, {.max = 1}), "i32[3] [-5, 0, 1]");
  EXPECT_TEXT(clip(x, ClipBounds{}), "i32[3] [-5, 0, 5]");
}

TEST(Sinc, HasDerivativesAtZero) {
  EXPECT_ELEMENTS(sinc(array({0.0f, 0.5f, 1.0f})), {1, 2 / M_PI, 0}, 1e-6);
  const auto first = grad([](const Array& x) { return sinc(x); });
  EXPECT_NEAR(first(astype(0.0, f64)).item<double>(), 0, 1e-12);
  EXPECT_NEAR(grad([&](const Array& x) { return first(x); })(astype(0.0, f64)).item<double>(), -M_PI * M_PI / 3, 1e-9);
  EXPECT_ELEMENTS(heaviside(array({-2.0f, 0.0f, 3.0f}), 0.5f), {0, 0.5, 1}, 0);
  EXPECT_ELEMENTS(deg2rad(array({180.0f})), {M_PI}, 1e-6);
  EXPECT_ELEMENTS(degrees(array({static_cast<float>(M_PI)})), {180}, 1e-4);
}

TEST(Representation, OfSignsAndExponents) {
  const Array x = array({-0.0f, 0.0f, -kNumericNan, kNumericInf, -8.0f, 0.3f});
  EXPECT_TEXT(signbit(x), "bool[6] [true, false, true, false, true, false]");
  EXPECT_TEXT(signbit(array({-1, 1})), "bool[2] [true, false]");
  EXPECT_ELEMENTS(copysign(array({1, -2}), array({-0.0f, 3.0f})), {-1, 2}, 0);
  for (DType t : {f16, bf16, f32, f64}) {
    const Array values = astype(array({0.0f, 1.0f, -6.0f, 0.375f, 1e-4f}), t);
    const auto [m, e] = frexp(values);
    EXPECT_EQ(m.dtype(), t);
    EXPECT_EQ(e.to_vector<int>()[2], 3);
    EXPECT_EQ(m.to_vector<double>()[2], -0.75);
    EXPECT_EQ(ldexp(m, e).to_vector<double>(), values.to_vector<double>()) << name(t);
  }
  EXPECT_EQ(ldexp(array({1.0f}), array({-140})).item<float>(), 0x1p-140f);
  EXPECT_EQ(ldexp(array({0x1p-140f}), array({250})).item<float>(), 0x1p110f);
  EXPECT_EQ(frexp(array({0x1p-140f})).second.item<int>(), -139);
  EXPECT_EQ(frexp(array({kNumericInf})).first.item<float>(), kNumericInf);
  EXPECT_THROWS(ldexp(x, array({1.0f})), Error, "ldexp: the exponent is f32[1]; it must be an integer");
}

TEST(Nextafter, IsTheNeighbour) {
  const std::vector<float> from{0, -0.0f, 1, -1, 1, kNumericInf, 0x1p-149f, 5}, to{1, -1, 2, 0, 0, 0, 0, 5};
  std::vector<float> wanted;
  for (size_t i = 0; i < from.size(); ++i) wanted.push_back(std::nextafter(from[i], to[i]));
  EXPECT_EQ(nextafter(Array::from(from, {8}), Array::from(to, {8})).to_vector<float>(), wanted);
  EXPECT_EQ(nextafter(full({}, 1.0, f64), 2).item<double>(), 1 + 0x1p-52);
  EXPECT_EQ(nextafter(full({}, 1.0, bf16), 2).item<float>(), 1 + 0x1p-7f);
  EXPECT_TRUE(std::isnan(nextafter(array({kNumericNan}), 1).item<float>()));
  EXPECT_THROWS(nextafter(full({}, 1.0, f16), 2), Error, "nextafter: the operands are f16");
}

TEST(Bits, AreCounted) {
  const std::vector<int32_t> x{0, 1, -1, 255, std::numeric_limits<int32_t>::min(), 0x12345678};
  std::vector<double> wanted, of_magnitude;
  for (int32_t i : x) {
    wanted.push_back(std::popcount(static_cast<uint32_t>(i)));
    of_magnitude.push_back(std::popcount(static_cast<uint32_t>(std::abs(static_cast<int64_t>(i)))));
  }
  EXPECT_ELEMENTS(population_count(Array::from(x, {6})), wanted, 0);
  EXPECT_ELEMENTS(bitwise_count(Array::from(x, {6})), of_magnitude, 0);
  EXPECT_EQ(population_count(full({}, -1, i64)).item<int>(), 64);
  EXPECT_EQ(bitwise_count(array({5})).dtype(), u8);
  EXPECT_TEXT(right_shift(left_shift(array({-3}), 2), 1), "i32[1] [-6]");
  EXPECT_THROWS(population_count(array({1.0f})), Error, "population_count: the operand is f32[1]");
}

TEST(Bools, AreAddedAndMultipliedAsInJax) {
  const Array yes = array({true, true}), no = array({true, false});
  EXPECT_TEXT(yes + no, "bool[2] [true, true]");
  EXPECT_TEXT(yes * no, "bool[2] [true, false]");
  EXPECT_TEXT(yes + 1, "i32[2] [2, 2]");
  EXPECT_TEXT(yes - no, "i32[2] [0, 1]");
}

TEST(NanToNum, ReplacesWhatIsNotFinite) {
  const Array x = array({kNumericNan, kNumericInf, -kNumericInf, 1.5f});
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(nan_to_num(x).to_vector<float>(), (std::vector<float>{0, most, -most, 1.5f}));
  EXPECT_TEXT(nan_to_num(x, {.nan = 7, .posinf = 8, .neginf = 9}), "f32[4] [7, 8, 9, 1.5]");
  EXPECT_TEXT(nan_to_num(array({1})), "i32[1] [1]");
  EXPECT_TEXT(isposinf(x), "bool[4] [false, true, false, false]");
  EXPECT_TEXT(isneginf(x), "bool[4] [false, false, true, false]");
  EXPECT_TEXT(isposinf(array({1})), "bool[1] [false]");
}

TEST(Isclose, HasRelativeAndAbsoluteTolerance) {
  const Array a = array({1.0f, 1.0f, kNumericInf, kNumericInf, kNumericNan, 0.0f}),
              b = array({1.000001f, 1.1f, kNumericInf, -kNumericInf, kNumericNan, 1e-9f});
  EXPECT_TEXT(isclose(a, b), "bool[6] [true, false, true, false, false, true]");
  EXPECT_TEXT(isclose(a, b, {.rtol = 0.2, .equal_nan = true}), "bool[6] [true, true, true, false, true, true]");
  EXPECT_TEXT(allclose(array({1, 2}), array({1, 2})), "bool[] true");
  EXPECT_TEXT(array_equal(array({1, 2}), array({1, 2, 3})), "bool[] false");
  EXPECT_TEXT(array_equal(array({kNumericNan}), array({kNumericNan})), "bool[] false");
  EXPECT_TEXT(array_equal(array({kNumericNan}), array({kNumericNan}), true), "bool[] true");
  EXPECT_TEXT(array_equiv(array({1, 1}), array({{1, 1}, {1, 1}})), "bool[] true");
  EXPECT_TEXT(array_equiv(array({1, 1}), array({1, 1, 1})), "bool[] false");
}

TEST(Select, TakesTheFirstTrueCondition) {
  const Array x = arange(6);
  EXPECT_TEXT(select({x < 2, x < 4}, {-x, x * x}, 100), "i32[6] [0, -1, 4, 9, 100, 100]");
  EXPECT_TEXT(select({x < 2}, {x * 0.5f}), "f32[6] [0, 0.5, 0, 0, 0, 0]");
  EXPECT_TEXT(select_n(array({0, 2, 1}), {array({1, 2, 3}), array({4, 5, 6}), array({7, 8, 9})}), "i32[3] [1, 8, 6]");
  EXPECT_TEXT(select_n(array({5, -1, 1}), {array({1, 2, 3}), array({4, 5, 6})}), "i32[3] [4, 2, 6]");
  const auto f = [](const Array& v) {
    return piecewise(
        v, {v<0, v> 1},
        {[](const Array& u) { return -u; }, [](const Array& u) { return u * u; }, [](const Array& u) { return u; }});
  };
  const Array y = array({-2.0f, 0.5f, 3.0f});
  EXPECT_TEXT(f(y), "f32[3] [2, 0.5, 9]");
  EXPECT_ELEMENTS(grad([&](const Array& v) { return sum(f(v)); })(y), {-1, 1, 6}, 1e-6);
  EXPECT_ELEMENTS(vmap(f)(y), {2, 0.5, 9}, 0);
  EXPECT_THROWS(select({}, {}), Error, "select: 0 conditions and 0 choices");
  EXPECT_THROWS(select_n(x, {}), Error, "select_n: no cases given");
  EXPECT_THROWS(piecewise(x, {x < 1}, {}), Error, "piecewise: 1 conditions and 0 functions");
}

}  // namespace
}  // namespace lockstep
