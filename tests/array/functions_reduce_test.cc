#include <cmath>
#include <functional>
#include <limits>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

// Only an integer is accepted as an axis: max(x, 0.f) does not mean the maximum over axis 0.
template <class T>
concept IsAxis = requires(Array x, T axis) {
  sum(x, axis);
};
template <class T>
concept MaxTakes = requires(Array x, T other) {
  max(x, other);
};
static_assert(IsAxis<int> && IsAxis<int64_t> && IsAxis<size_t> && !IsAxis<float> && !IsAxis<double> && !IsAxis<bool>);
static_assert(MaxTakes<int> && !MaxTakes<float> && !MaxTakes<Array>);

Array six_integers() { return array({{0, 1, 2}, {3, 4, 5}}); }

TEST(Reductions, TakeAxes) {
  EXPECT_TEXT(sum(six_integers()), "i32[] 15");
  EXPECT_TEXT(sum(six_integers(), 0), "i32[3] [3, 5, 7]");
  EXPECT_TEXT(sum(six_integers(), -1), "i32[2] [3, 12]");
  EXPECT_TEXT(sum(six_integers(), {0, 1}), "i32[] 15");
  EXPECT_TEXT(sum(six_integers(), std::vector<int64_t>{}), "i32[2,3] [[0, 1, 2], [3, 4, 5]]");
  EXPECT_TEXT(sum(six_integers(), 1, {.keepdims = true}), "i32[2,1] [[3], [12]]");
  EXPECT_TEXT(sum(six_integers(), {}, {.keepdims = true}), "i32[1,1] [[15]]");
  EXPECT_TEXT(sum(six_integers(), {.keepdims = true}), "i32[1,1] [[15]]");
  EXPECT_TEXT(sum(six_integers(), {1}), "i32[2] [3, 12]");
  EXPECT_TEXT(argmax(six_integers(), {.keepdims = true}), "i32[1,1] [[5]]");
  EXPECT_TEXT(sum(Array(2)), "i32[] 2");
  EXPECT_TEXT(max(six_integers(), 0), "i32[3] [3, 4, 5]");
  EXPECT_TEXT(min(six_integers(), 1), "i32[2] [0, 3]");
  EXPECT_TEXT(prod(six_integers(), 1), "i32[2] [0, 60]");
  EXPECT_TEXT(any(six_integers(), 1), "bool[2] [true, true]");
  EXPECT_TEXT(all(six_integers(), 1), "bool[2] [false, true]");
  EXPECT_TEXT(mean(six_integers(), 1), "f32[2] [1, 4]");
}

TEST(Reductions, RejectInvalidAxes) {
  EXPECT_THROWS(sum(six_integers(), 2), Error, "sum: axis 2 is out of range for [2, 3]; valid axes: -2 to 1");
  EXPECT_THROWS(mean(six_integers(), -3), Error, "mean: axis -3 is out of range for [2, 3]");
  EXPECT_THROWS(max(six_integers(), {1, -1}), Error, "max: axis 1 of [2, 3] is given twice");
  EXPECT_THROWS(sum(Array(1), 0), Error, "sum: axis 0 is out of range; a scalar has no axes");
  EXPECT_THROWS(max(zeros({0, 3}), 0), Error, "max: dimension 0 of [0, 3] is empty; reduce over a nonempty dimension");
  EXPECT_THROWS(argmin(zeros({0})), Error, "argmin: dimension 0 of [0] is empty");
}

TEST(Reductions, HaveTheRightResultTypes) {
  EXPECT_TEXT(sum(array({true, true, false})), "i32[] 2");
  EXPECT_TEXT(sum(full({300}, 1, u8)), "u32[] 300");
  EXPECT_TEXT(prod(array({true, false})), "i32[] 0");
  EXPECT_TEXT(max(array({true, false})), "bool[] true");
  EXPECT_TEXT(min(array({true, false})), "bool[] false");
  EXPECT_TEXT(mean(array({true, false})), "f32[] 0.5");
  EXPECT_EQ(sum(ones({2}, bf16)).dtype(), bf16);
  EXPECT_EQ(mean(ones({2}, f64)).dtype(), f64);
}

TEST(Reductions, OfEmptyArrays) {
  EXPECT_TEXT(sum(zeros({0, 2}), 0), "f32[2] [0, 0]");
  EXPECT_TEXT(prod(zeros({0})), "f32[] 1");
  EXPECT_TEXT(any(zeros({0})), "bool[] false");
  EXPECT_TEXT(all(zeros({0})), "bool[] true");
  EXPECT_TEXT(max(zeros({0, 2}), 1), "f32[0] []");
}

TEST(Mean, AccumulatesHalvesInF32) {
  EXPECT_EQ(mean(full({4096}, 40, f16)).item<float>(), 40.0f);  // the sum does not fit f16
  EXPECT_EQ(mean(full({1001}, 3, bf16)).item<float>(), 3.0f);
  EXPECT_EQ(var(full({1001}, 3, bf16)).item<float>(), 0.0f);
}

TEST(Variance, DividesByCountMinusDdof) {
  const Array x = array({{1.0f, 2.0f, 3.0f, 4.0f}, {2.0f, 2.0f, 2.0f, 2.0f}});
  EXPECT_TEXT(var(x, 1), "f32[2] [1.25, 0]");
  EXPECT_ELEMENTS(var(x, 1, {.ddof = 1}), {5.0 / 3, 0}, 1e-6);
  EXPECT_ELEMENTS(var(six_integers(), {.ddof = 1}), {3.5}, 1e-6);
  EXPECT_ELEMENTS(standard_deviation(six_integers(), {.keepdims = true, .ddof = 1}), {std::sqrt(3.5)}, 1e-6);
  EXPECT_ELEMENTS(standard_deviation(x, 1), {std::sqrt(1.25), 0}, 1e-6);
  EXPECT_EQ(var(x, {}, {.keepdims = true}).shape(), (Shape{1, 1}));
  EXPECT_TEXT(var(array({1, 3})), "f32[] 1");
}

TEST(Extremes, ReturnTheirIndices) {
  const Array x = array({{3, 9, 9}, {7, 1, 1}});
  EXPECT_TEXT(argmax(x), "i32[] 1");
  EXPECT_TEXT(argmax(x, 1), "i32[2] [1, 0]");
  EXPECT_TEXT(argmin(x, -1), "i32[2] [0, 1]");
  EXPECT_TEXT(argmax(x, 0, {.keepdims = true}), "i32[1,3] [[1, 0, 0]]");
  EXPECT_TEXT(argmax(x, {}, {.keepdims = true}), "i32[1,1] [[1]]");
  EXPECT_TEXT(argmax(array({false, true})), "i32[] 1");
  EXPECT_THROWS(argmax(x, 2), Error, "argmax: axis 2 is out of range");
}

TEST(Cumsum, RunsAlongAnAxis) {
  EXPECT_TEXT(cumsum(six_integers(), 1), "i32[2,3] [[0, 1, 3], [3, 7, 12]]");
  EXPECT_TEXT(cumsum(six_integers(), 0), "i32[2,3] [[0, 1, 2], [3, 5, 7]]");
  EXPECT_TEXT(cumsum(array({true, true}), -1, true), "i32[2] [2, 1]");
  EXPECT_THROWS(cumsum(Array(1), 0), Error, "cumsum: axis 0 is out of range; a scalar has no axes");
}

TEST(Softmax, NeitherOverflowsNorUnderflows) {
  const Array x = array({{1000.0f, 1000.0f}, {-1000.0f, -1000.0f}, {0.0f, 1.0f}});
  const double e = std::exp(1.0);
  EXPECT_ELEMENTS(softmax(x), {0.5, 0.5, 0.5, 0.5, 1 / (1 + e), e / (1 + e)}, 1e-6);
  EXPECT_ELEMENTS(log_softmax(x), {-M_LN2, -M_LN2, -M_LN2, -M_LN2, -std::log(1 + e), 1 - std::log(1 + e)}, 1e-6);
  EXPECT_ELEMENTS(logsumexp(x, -1), {1000 + M_LN2, -1000 + M_LN2, std::log(1 + e)}, 1e-4);
  EXPECT_EQ(logsumexp(x, 1, {.keepdims = true}).shape(), (Shape{3, 1}));
  EXPECT_ELEMENTS(sum(softmax(x, 0), 0), {1, 1}, 1e-6);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(logsumexp(array({-inf, -inf})).item<float>(), -inf);
  EXPECT_EQ(logsumexp(array({inf, 0.0f})).item<float>(), inf);
  EXPECT_EQ(softmax(ones({2}, bf16)).dtype(), bf16);
  EXPECT_EQ(log_softmax(array({1, 2})).dtype(), f32);
  EXPECT_THROWS(softmax(Array(1)), Error, "softmax: axis -1 is out of range; a scalar has no axes");
}

TEST(Softmax, LossGradientIsProbabilityLessLabel) {
  const Array x = array({{0.5f, -1.0f, 2.0f}}), label = array({{0.0f, 1.0f, 0.0f}});
  const Array g = grad([&](const Array& v) { return -sum(log_softmax(v) * label); })(x);
  EXPECT_ELEMENTS(g, (softmax(x) - label).to_vector<double>(), 1e-6);
  EXPECT_ELEMENTS(grad([](const Array& v) { return logsumexp(v); })(x), softmax(x).to_vector<double>(), 1e-6);
}

TEST(Reductions, AreTheSameUnderJitAndVmap) {
  const Array x = array({{1.0f, 2.0f, 4.0f}, {-1.0f, 0.5f, 3.0f}});
  const auto f = [](const Array& v) { return stack({mean(v), var(v), max(v), logsumexp(v), standard_deviation(v)}); };
  EXPECT_ELEMENTS(jit(f)(x), f(x).to_vector<double>(), 1e-6);
  EXPECT_ELEMENTS(vmap(f)(x), stack({f(at(x, 0)), f(at(x, 1))}).to_vector<double>(), 1e-6);
}

// An infinite maximum makes NaN of itself, and so of the sum that all elements are divided by.
TEST(Softmax, InfinitySpreadsNaNOverItsRow) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto nans = [](const Array& x) { return sum(astype(isnan(x), i32)).item<int32_t>(); };
  for (const DType dtype : {f32, f64, bf16, f16}) {
    SCOPED_TRACE(to_string(Type{dtype, {}}));
    const Array rows = astype(array({{inf, 1.f, 2.f}, {-inf, 1.f, 2.f}, {-inf, -inf, -inf}, {3.f, -1.f, inf}}), dtype);
    for (const auto& f : std::vector<std::function<Array(Array, int64_t)>>{
             [](Array x, int64_t axis) { return softmax(x, axis); },
             [](Array x, int64_t axis) { return log_softmax(x, axis); },
             [](Array x, int64_t axis) {
               return grad([axis](Array v) { return sum(astype(softmax(v, axis), f32)); })(x);
             },
         }) {
      for (const bool compiled : {false, true}) {
        const auto along = [&](const Array& x, int64_t axis) {
          return compiled ? jit([&](Array v) { return f(v, axis); })(x) : f(x, axis);
        };
        EXPECT_EQ(nans(along(rows, -1)), 9);
        EXPECT_EQ(nans(along(rows(1), -1)), 0);
        EXPECT_EQ(nans(along(transpose(rows), 0)), 9);
      }
    }
    EXPECT_EQ(nans(softmax(rows, Axes{0, 1})), 12);
    EXPECT_TEXT(astype(logsumexp(rows, -1), f32)(0), "f32[] inf");
    EXPECT_TEXT(astype(logsumexp(rows, -1), f32)(2), "f32[] -inf");
  }
}

}  // namespace
}  // namespace lockstep
