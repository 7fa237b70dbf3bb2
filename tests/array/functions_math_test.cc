#include <cmath>
#include <limits>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Operators, AreElementwise) {
  const Array a = array({1, 2, 3}), b = array({4, 5, 6});
  EXPECT_TEXT(a + b, "i32[3] [5, 7, 9]");
  EXPECT_TEXT(a - b, "i32[3] [-3, -3, -3]");
  EXPECT_TEXT(a * b, "i32[3] [4, 10, 18]");
  EXPECT_TEXT(-a, "i32[3] [-1, -2, -3]");
  EXPECT_TEXT(b / a, "f32[3] [4, 2.5, 2]");
  EXPECT_TEXT(a == array({1, 0, 3}), "bool[3] [true, false, true]");
  EXPECT_TEXT(a != array({1, 0, 3}), "bool[3] [false, true, false]");
  EXPECT_TEXT(a < 2, "bool[3] [true, false, false]");
  EXPECT_TEXT(a <= 2, "bool[3] [true, true, false]");
  EXPECT_TEXT(2 < a, "bool[3] [false, false, true]");
  EXPECT_TEXT(a >= 2, "bool[3] [false, true, true]");
}

TEST(Operators, WorkOnBits) {
  const Array a = array({1, 2, 3, -8});
  EXPECT_TEXT(a & 2, "i32[4] [0, 2, 2, 0]");
  EXPECT_TEXT(a | 4, "i32[4] [5, 6, 7, -4]");
  EXPECT_TEXT(a ^ 1, "i32[4] [0, 3, 2, -7]");
  EXPECT_TEXT(~a, "i32[4] [-2, -3, -4, 7]");
  EXPECT_TEXT(a << 2, "i32[4] [4, 8, 12, -32]");
  EXPECT_TEXT(a >> 1, "i32[4] [0, 1, 1, -4]");
  EXPECT_TEXT(array({true, false}) & array({true, true}), "bool[2] [true, false]");
  EXPECT_TEXT(~array({true, false}), "bool[2] [false, true]");
  EXPECT_THROWS(array({1.5f}) & 1, Error,
                "bit_and: operands f32[1] and i32[]; bitwise operations need integers or bools");
  EXPECT_THROWS(array({1.5f}) << 1, Error, "shift_left: operands f32[1] and i32[]; shifts need integers");
  EXPECT_THROWS(~array({1.5f}), Error, "bit_not: operand f32[1]; bitwise operations need integers or bools");
}

TEST(Operators, AssignANewArrayToTheHandle) {
  Array a = array({1, 2});
  const Array before = a;
  a += 1;
  a *= array({2, 3});
  a -= 1;
  EXPECT_TEXT(a, "i32[2] [3, 8]");
  a /= 2;
  EXPECT_TEXT(a, "f32[2] [1.5, 4]");
  EXPECT_TEXT(before, "i32[2] [1, 2]");
}

TEST(Operators, RemainderHasTheSignOfTheDivisor) {
  const Array a = array({7, -7, 7, -7, 6}), b = array({3, 3, -3, -3, 3});
  EXPECT_TEXT(a % b, "i32[5] [1, 2, -2, -1, 0]");
  EXPECT_TEXT(floor_divide(a, b), "i32[5] [2, -3, -3, 2, 2]");
  EXPECT_TEXT(astype(a, f32) % astype(b, f32), "f32[5] [1, 2, -2, -1, 0]");
  EXPECT_TEXT(floor_divide(astype(a, f32), b), "f32[5] [2, -3, -3, 2, 2]");
  EXPECT_TEXT(astype(array({7, 9}), u8) % 4, "u8[2] [3, 1]");
  EXPECT_TEXT(floor_divide(astype(array({7, 9}), u32), 4), "u32[2] [1, 2]");
}

TEST(Broadcasting, RepeatsDimensionsOfOne) {
  const Array column = array({{1}, {2}}), row = array({10, 20, 30});
  EXPECT_TEXT(column + row, "i32[2,3] [[11, 21, 31], [12, 22, 32]]");
  EXPECT_TEXT(row + column, "i32[2,3] [[11, 21, 31], [12, 22, 32]]");
  EXPECT_TEXT(array({5}) + column, "i32[2,1] [[6], [7]]");
  EXPECT_EQ((zeros({4, 1, 3}) + zeros({2, 1})).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ((zeros({0, 1}) + zeros({3})).shape(), (Shape{0, 3}));
  EXPECT_EQ((zeros({1, 1}) + zeros({})).shape(), (Shape{1, 1}));
}

TEST(Broadcasting, RejectsMismatchedShapes) {
  EXPECT_THROWS(zeros({2, 3}) + zeros({4}), Error,
                "add: shapes [2, 3] and [4] do not broadcast: dimension -1 is 3 in one and 4");
  EXPECT_THROWS(static_cast<void>(zeros({2, 3}) < zeros({3, 3})), Error,
                "less: shapes [2, 3] and [3, 3] do not broadcast: dimension -2 is 2");
  EXPECT_THROWS(where(zeros({2}), zeros({3}), 0), Error, "where: shapes [2], [3] and [] do not broadcast");
  EXPECT_THROWS(clip(zeros({2}), zeros({3}), 1), Error, "clip: shapes [2], [3] and [] do not broadcast");
}

TEST(Promotion, ArraysPromoteToTheWiderType) {
  const DType types[] = {boolean, u8, u16, u32, u64, i8, i16, i32, i64, bf16, f16, f32, f64};
  for (DType a : types) {
    for (DType b : types) {
      const DType common = promote(a, b);
      SCOPED_TRACE(testing::Message() << name(a) << " and " << name(b));
      EXPECT_EQ((ones({2}, a) + ones({2}, b)).dtype(), common);
      EXPECT_EQ((ones({2}, a) - ones({2}, b)).dtype(), common == boolean ? i32 : common);
      EXPECT_EQ(maximum(ones({2}, a), ones({2}, b)).dtype(), common);
      EXPECT_EQ((ones({2}, a) / ones({2}, b)).dtype(), is_floating(common) ? common : f32);
    }
  }
}

TEST(Promotion, NumbersTakeTheTypeOfTheArray) {
  for (DType t : {bf16, f16, f32, f64}) {
    EXPECT_EQ((ones({2}, t) * 0.5).dtype(), t);
    EXPECT_EQ((1 + ones({2}, t)).dtype(), t);
    EXPECT_EQ(pow(ones({2}, t), 2).dtype(), t);
    EXPECT_EQ(where(true, ones({2}, t), 0.0f).dtype(), t);
  }
  EXPECT_EQ((ones({2}, u8) + 1).dtype(), u8);
  EXPECT_EQ((ones({2}, i64) + 1).dtype(), i64);
  EXPECT_EQ((ones({2}, u8) + 1.5).dtype(), f32);
  EXPECT_EQ((ones({2}, boolean) + 1).dtype(), i32);
  EXPECT_EQ((ones({2}, boolean) & true).dtype(), boolean);
  EXPECT_TEXT(Array(1) + Array(2), "i32[] 3");
  EXPECT_TEXT(Array(1) / Array(2), "f32[] 0.5");
  EXPECT_TEXT(ones({1}, f64) * 0.1, "f64[1] [0.1]");
  EXPECT_EQ((ones({1}, f64) * 0.1).item<double>(), 0.1);
}

TEST(Elementary, FunctionsHaveTheirValues) {
  const Array x = array({0.5f, -1.5f});
  auto check = [&](const Array& y, double (*f)(double)) { EXPECT_ELEMENTS(y, {f(0.5), f(-1.5)}, 1e-6); };
  check(exp(x), std::exp);
  check(expm1(x), std::expm1);
  check(tanh(x), std::tanh);
  check(erf(x), std::erf);
  check(sin(x), std::sin);
  check(cos(x), std::cos);
  check(abs(x), std::fabs);
  check(floor(x), std::floor);
  check(ceil(x), std::ceil);
  const Array p = array({0.25f, 4.0f});
  EXPECT_ELEMENTS(log(p), {std::log(0.25), std::log(4)}, 1e-6);
  EXPECT_ELEMENTS(log1p(p), {std::log1p(0.25), std::log1p(4)}, 1e-6);
  EXPECT_ELEMENTS(sqrt(p), {0.5, 2}, 0);
  EXPECT_ELEMENTS(rsqrt(p), {2, 0.5}, 1e-6);
  EXPECT_ELEMENTS(square(p), {0.0625, 16}, 0);
  EXPECT_ELEMENTS(erf_inv(erf(x)), {0.5, -1.5}, 1e-5);
  EXPECT_ELEMENTS(sigmoid(x), {1 / (1 + std::exp(-0.5)), 1 / (1 + std::exp(1.5))}, 1e-6);
  EXPECT_ELEMENTS(logistic(x), {1 / (1 + std::exp(-0.5)), 1 / (1 + std::exp(1.5))}, 1e-6);
  EXPECT_ELEMENTS(pow(p, 1.5), {0.125, 8}, 1e-6);
  EXPECT_ELEMENTS(sign(array({-2.0f, 0.0f, 3.0f})), {-1, 0, 1}, 0);
  EXPECT_ELEMENTS(round(array({0.5f, 1.5f, 2.6f})), {0, 2, 3}, 0);
}

TEST(Elementary, IntegersBecomeF32) {
  EXPECT_TEXT(exp(array({0})), "f32[1] [1]");
  EXPECT_TEXT(sqrt(ones({1}, u8)), "f32[1] [1]");
  EXPECT_TEXT(tanh(zeros({1}, boolean)), "f32[1] [0]");
  EXPECT_EQ(exp(ones({1}, bf16)).dtype(), bf16);
  EXPECT_TEXT(floor(array({3})), "i32[1] [3]");
  EXPECT_TEXT(square(array({3})), "i32[1] [9]");
  EXPECT_TEXT(pow(array({3, -2}), 3), "i32[2] [27, -8]");
  EXPECT_TEXT(abs(array({true})), "i32[1] [1]");
}

TEST(Selection, BroadcastsAndPromotes) {
  const Array x = array({-1.0f, 0.5f, 2.0f});
  EXPECT_TEXT(where(x > 0, x, 0), "f32[3] [0, 0.5, 2]");
  EXPECT_TEXT(where(array({{true}, {false}}), x, -x), "f32[2,3] [[-1, 0.5, 2], [1, -0.5, -2]]");
  EXPECT_TEXT(where(2, array({true}), array({false})), "bool[1] [true]");
  EXPECT_TEXT(clip(x, 0, 1), "f32[3] [0, 0.5, 1]");
  EXPECT_TEXT(clip(array({1, 5}), 2, 3), "i32[2] [2, 3]");
  EXPECT_TEXT(maximum(x, 0), "f32[3] [0, 0.5, 2]");
  EXPECT_TEXT(minimum(x, array({{0}, {1}})), "f32[2,3] [[-1, 0, 0], [-1, 0.5, 1]]");
}

TEST(Predicates, ClassifyNonFiniteValues) {
  const Array x = array({1.0f, kInf, -kInf, kNan});
  EXPECT_TEXT(isfinite(x), "bool[4] [true, false, false, false]");
  EXPECT_TEXT(isinf(x), "bool[4] [false, true, true, false]");
  EXPECT_TEXT(isnan(x), "bool[4] [false, false, false, true]");
  EXPECT_TEXT(isfinite(array({1})), "bool[1] [true]");
  EXPECT_TEXT(isnan(array({1})), "bool[1] [false]");
  EXPECT_TEXT(isinf(array({1})), "bool[1] [false]");
}

TEST(Logic, NonzeroIsTrue) {
  EXPECT_TEXT(logical_and(array({0, 2, 3}), array({1, 1, 0})), "bool[3] [false, true, false]");
  EXPECT_TEXT(logical_or(array({0.0f, 2.0f}), array({false, false})), "bool[2] [false, true]");
  EXPECT_TEXT(logical_xor(array({0, 3, 0, 2}), array({0, 0, 5, 7})), "bool[4] [false, true, true, false]");
  EXPECT_TEXT(logical_not(array({0, 2})), "bool[2] [true, false]");
  EXPECT_TEXT(logical_and(2, array({1, 0})), "bool[2] [true, false]");
}

TEST(Astype, Converts) {
  EXPECT_TEXT(astype(array({1.7f, -1.7f}), i32), "i32[2] [1, -1]");
  EXPECT_TEXT(astype(array({0, 2}), boolean), "bool[2] [false, true]");
  EXPECT_TEXT(astype(array({true, false}), f32), "f32[2] [1, 0]");
  EXPECT_TEXT(astype(2, boolean), "bool[] true");
  EXPECT_EQ(astype(0.1, f64).item<double>(), 0.1);
  EXPECT_EQ(astype(array({1, 2}), bf16).dtype(), bf16);
}

TEST(Activations, HaveTheirValues) {
  EXPECT_TEXT(relu(array({-1.0f, 0.0f, 2.0f})), "f32[3] [0, 0, 2]");
  EXPECT_TRUE(std::isnan(relu(array({kNan})).item<float>()));
  const Array x = array({-1.0f, 0.0f, 2.0f});
  EXPECT_ELEMENTS(gelu(x), {-0.15880801, 0, 1.95459769}, 1e-6);
  EXPECT_ELEMENTS(gelu_exact(x), {-0.15865525, 0, 1.95449974}, 1e-6);
  EXPECT_ELEMENTS(silu(x), {-0.26894142, 0, 1.76159416}, 1e-6);
  EXPECT_ELEMENTS(softplus(x), {0.31326169, 0.69314718, 2.12692801}, 1e-6);
  EXPECT_TEXT(softplus(array({1000.f, -1000.f})), "f32[2] [1000, 0]");
}

TEST(Activations, HaveTheirGradients) {
  auto slope = [](auto f, const Array& x) { return grad([f](const Array& v) { return sum(f(v)); })(x); };
  const Array x = array({-1.0f, 0.0f, 2.0f});
  EXPECT_TEXT(slope([](const Array& v) { return relu(v); }, x), "f32[3] [0, 0, 1]");
  EXPECT_ELEMENTS(slope([](const Array& v) { return where(v > 0, v * v, 0); }, x), {0, 0, 4}, 0);
  EXPECT_TEXT(slope([](const Array& v) { return stop_gradient(v) * v; }, x), "f32[3] [-1, 0, 2]");
  EXPECT_ELEMENTS(slope([](const Array& v) { return silu(v); }, x), {0.07232949, 0.5, 1.09078425}, 1e-6);
  EXPECT_ELEMENTS(slope([](const Array& v) { return softplus(v); }, x), {0.26894142, 0.5, 0.88079708}, 1e-6);
}

TEST(Functions, RejectEmptyHandles) {
  EXPECT_THROWS(exp(Array()), Error, "empty");
  EXPECT_THROWS(Array() + 1, Error, "empty");
}

TEST(Functions, AreTheSameUnderJit) {
  const auto f = [](const Array& a, const Array& b) {
    return where(a > b, gelu(a), b % 3) + exp(-abs(a)) / (1 + b * b);
  };
  const Array a = array({{0.5f, -2.0f}, {3.0f, 1.0f}}), b = array({1, 2});
  EXPECT_ELEMENTS(jit(f)(a, b), f(a, b).to_vector<double>(), 1e-6);
}

}  // namespace
}  // namespace lockstep
