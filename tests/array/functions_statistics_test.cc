#include "lockstep/statistics.h"

#include <cmath>
#include <limits>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/indexing.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/numeric.h"
#include "lockstep/rearrange.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

constexpr float kStatisticsNan = std::numeric_limits<float>::quiet_NaN(),
                kStatisticsInf = std::numeric_limits<float>::infinity();

Array with_nan() {
  return array({{1.0f, kStatisticsNan, 3.0f}, {kStatisticsNan, kStatisticsNan, kStatisticsNan}, {4.0f, 5.0f, 6.0f}});
}
Array table() { return array({{3.0f, 1.0f, 2.0f, 10.0f}, {8.0f, 6.0f, 4.0f, 2.0f}}); }

TEST(Quantile, HasSixMethods) {
  const Array x = array({4.0f, 1.0f, 3.0f, 2.0f});
  const auto at_method = [&](std::string_view method) {
    return quantile(x, array({0.0f, 0.4f, 0.5f, 1.0f}), {}, {.method = method});
  };
  EXPECT_ELEMENTS(at_method("linear"), {1, 2.2, 2.5, 4}, 1e-6);
  EXPECT_ELEMENTS(at_method("lower"), {1, 2, 2, 4}, 0);
  EXPECT_ELEMENTS(at_method("higher"), {1, 3, 3, 4}, 0);
  EXPECT_ELEMENTS(at_method("midpoint"), {1, 2.5, 2.5, 4}, 0);
  EXPECT_ELEMENTS(at_method("nearest"), {1, 2, 2, 4}, 0);
  EXPECT_ELEMENTS(at_method("inverted_cdf"), {1, 2, 2, 4}, 0);
  EXPECT_THROWS(at_method("best"), Error, "quantile: no method is called \"best\"; use linear, lower");
  EXPECT_THROWS(quantile(zeros({0}), 0.5f), Error, "quantile: [0] has no elements along the axes");
  EXPECT_THROWS(quantile(x, zeros({1, 1})), Error, "quantile: q is f32[1,1]; it must be a scalar or a vector");
}

TEST(Quantile, TakesAxesAndKeepsThem) {
  EXPECT_ELEMENTS(quantile(table(), 0.5f, 1), {2.5, 5}, 1e-6);
  EXPECT_ELEMENTS(quantile(table(), array({0.0f, 1.0f}), 0), {3, 1, 2, 2, 8, 6, 4, 10}, 1e-6);
  EXPECT_EQ(quantile(table(), array({0.1f, 0.2f, 0.3f}), 0, {.keepdims = true}).shape(), (Shape{3, 1, 4}));
  EXPECT_EQ(quantile(zeros({2, 3, 4}), 0.5f, {0, 2}, {.keepdims = true}).shape(), (Shape{1, 3, 1}));
  EXPECT_ELEMENTS(percentile(array({1, 2, 3, 4, 5}), 25), {2}, 1e-6);
  EXPECT_ELEMENTS(median(table()), {3.5}, 1e-6);
  EXPECT_ELEMENTS(median(table(), 1), {2.5, 5}, 1e-6);
  EXPECT_EQ(median(table(), {.keepdims = true}).shape(), (Shape{1, 1}));
  EXPECT_EQ(median(ones({3}, bf16)).dtype(), bf16);
  EXPECT_TRUE(std::isnan(median(array({1.0f, kStatisticsNan})).item<float>()));
  EXPECT_ELEMENTS(nanmedian(array({1.0f, kStatisticsNan, 5.0f, 9.0f})), {5}, 0);
  EXPECT_ELEMENTS(nan_to_num(nanquantile(with_nan(), 0.5f, 1), {.nan = -1}), {2, -1, 5}, 1e-6);
  EXPECT_ELEMENTS(jit([](const Array& x) { return median(x, 1); })(table()), {2.5, 5}, 1e-6);
  EXPECT_ELEMENTS(vmap([](const Array& x) { return median(x); })(table()), {2.5, 5}, 1e-6);
  EXPECT_ELEMENTS(grad([](const Array& x) { return median(x); })(at(table(), 0)), {0.5, 0, 0.5, 0}, 1e-6);
}

TEST(NanReductions, IgnoreNan) {
  const auto shown = [](const Array& x) { return nan_to_num(x, {.nan = -99}); };
  EXPECT_ELEMENTS(nansum(with_nan(), 1), {4, 0, 15}, 1e-6);
  EXPECT_ELEMENTS(nanprod(with_nan(), 1), {3, 1, 120}, 1e-4);
  EXPECT_ELEMENTS(shown(nanmean(with_nan(), 1)), {2, -99, 5}, 1e-6);
  EXPECT_ELEMENTS(shown(nanmax(with_nan(), 1)), {3, -99, 6}, 0);
  EXPECT_ELEMENTS(shown(nanmin(with_nan(), 1)), {1, -99, 4}, 0);
  EXPECT_ELEMENTS(shown(nanvar(with_nan(), 1)), {1, -99, 2.0 / 3}, 1e-6);
  EXPECT_ELEMENTS(shown(nanstd(with_nan(), 1, {.ddof = 1})), {std::sqrt(2.0), -99, 1}, 1e-6);
  EXPECT_ELEMENTS(shown(nanvar(array({kStatisticsNan, 2.0f}), {.ddof = 1})), {-99}, 0);
  EXPECT_ELEMENTS(nanargmax(with_nan(), 1), {2, -1, 2}, 0);
  EXPECT_ELEMENTS(nanargmin(with_nan(), 1), {0, -1, 0}, 0);
  EXPECT_ELEMENTS(nancumsum(with_nan(), 1), {1, 1, 4, 0, 0, 0, 4, 9, 15}, 1e-6);
  EXPECT_ELEMENTS(nancumprod(with_nan(), 1), {1, 1, 3, 1, 1, 1, 4, 20, 120}, 1e-4);
  EXPECT_ELEMENTS(nansum(with_nan(), {.keepdims = true}), {19}, 1e-6);
  EXPECT_ELEMENTS(nanmax(with_nan(), 1, {.initial = 5}), {5, 5, 6}, 0);
  EXPECT_TEXT(nanmax(array({1, 3})), "i32[] 3");
  EXPECT_ELEMENTS(grad([](const Array& x) { return nansum(x * x); })(array({2.0f, 3.0f})), {4, 6}, 1e-6);
}

TEST(MaskedReductions, CountOnlySomeElements) {
  const Array x = array({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}}), odd = array({true, false, true});
  EXPECT_ELEMENTS(sum(x, 1, {.where = odd}), {4, 10}, 1e-6);
  EXPECT_ELEMENTS(sum(x, {.where = odd, .initial = 100}), {114}, 1e-6);
  EXPECT_ELEMENTS(prod(x, 1, {.where = odd, .initial = 2}), {6, 48}, 1e-6);
  EXPECT_ELEMENTS(max(x, 1, {.where = odd, .initial = 5}), {5, 6}, 0);
  EXPECT_ELEMENTS(min(x, 1, {.initial = 2}), {1, 2}, 0);
  EXPECT_ELEMENTS(max(zeros({0, 2}), 0, {.initial = -1}), {-1, -1}, 0);
  EXPECT_ELEMENTS(mean(x, 1, {.where = odd}), {2, 5}, 1e-6);
  EXPECT_ELEMENTS(var(x, 1, {.ddof = 1, .where = odd}), {2, 2}, 1e-6);
  EXPECT_ELEMENTS(standard_deviation(x, 1, {.where = odd}), {1, 1}, 1e-6);
  EXPECT_TEXT(any(x > 4, 0, {.where = odd}), "bool[3] [false, false, true]");
  EXPECT_TEXT(all(x > 1, 1, {.where = ~odd}), "bool[2] [true, true]");
  EXPECT_THROWS(max(x, 1, {.where = odd}), Error, "max: a mask of elements without an initial value");
  EXPECT_THROWS(sum(x, 1, {.initial = odd}), Error, "sum: the initial value is bool[3]; it must be a scalar");
  EXPECT_THROWS(any(x, 1, {.initial = 1}), Error, "any: takes no initial value");
  EXPECT_THROWS(argmax(x, 1, {.where = odd}), Error, "argmax: takes no mask of elements");
}

TEST(Logsumexp, TakesFactors) {
  const Array x = array({1000.0f, 1001.0f, -kStatisticsInf}), b = array({2.0f, 1.0f, 5.0f});
  EXPECT_ELEMENTS(logsumexp(x, 0, {.b = b}), {1001 + std::log(1 + 2 / M_E)}, 1e-3);
  EXPECT_ELEMENTS(logsumexp(x, {.where = array({true, false, false})}), {1000}, 1e-3);
  EXPECT_ELEMENTS(logsumexp(array({kStatisticsInf, 0.0f}), {.b = array({0.0f, 1.0f})}), {0}, 1e-6);
  EXPECT_EQ(logsumexp(x, {.where = array({false, false, false})}).item<float>(), -kStatisticsInf);
  EXPECT_ELEMENTS(grad([&](const Array& v) {
                    return logsumexp(v, {.b = array({1.0f, 3.0f})});
                  })(zeros({2})),
                  {0.25, 0.75}, 1e-6);
}

TEST(Cumulative, ResultsFollowTheAxis) {
  const Array x = array({{2.0f, -1.0f, 3.0f}, {0.0f, 4.0f, 1.0f}});
  EXPECT_ELEMENTS(cumprod(x, 1), {2, -2, -6, 0, 0, 0}, 0);
  EXPECT_ELEMENTS(cummax(x, 1), {2, 2, 3, 0, 4, 4}, 0);
  EXPECT_ELEMENTS(cummin(x, 1, true), {-1, -1, 3, 0, 1, 1}, 0);
  EXPECT_ELEMENTS(cumlogsumexp(array({1000.0f, 1000.0f}), 0), {1000, 1000 + M_LN2}, 1e-3);
  EXPECT_ELEMENTS(cumsum(x), {2, 1, 4, 4, 8, 9}, 1e-6);
  EXPECT_TEXT(cumprod(array({2, 3})), "i32[2] [2, 6]");
  EXPECT_EQ(cumsum(full({3}, 1, u8), 0).dtype(), u8);
  EXPECT_EQ(cumlogsumexp(array({1, 2}), 0).dtype(), f32);
  const Array y = cummax(array({1.0f, kStatisticsNan, 3.0f}), 0);
  EXPECT_TEXT(isnan(y), "bool[3] [false, true, true]");
}

TEST(Averages, TakeWeights) {
  EXPECT_ELEMENTS(average(table(), 1, array({1, 0, 0, 3})), {33.0 / 4, 14.0 / 4}, 1e-6);
  const auto [mean_of, total] = average_and_weight(table(), {}, ones({2, 4}));
  EXPECT_ELEMENTS(mean_of, {4.5}, 1e-6);
  EXPECT_ELEMENTS(total, {8}, 1e-6);
  EXPECT_ELEMENTS(average(table()), {4.5}, 1e-6);
  EXPECT_THROWS(average(table(), 1, ones({3})), Error, "average: weights [3] for [2, 4]");
  EXPECT_ELEMENTS(ptp(table(), 1), {9, 6}, 0);
  EXPECT_TEXT(count_nonzero(array({{0, 1}, {2, 3}}), 0), "i32[2] [1, 2]");
  EXPECT_ELEMENTS(mean_and_var(table()).second, var(table()).to_vector<double>(), 1e-6);
}

TEST(Covariance, OfRows) {
  const Array x = array({{0.0f, 1.0f, 2.0f}, {2.0f, 1.0f, 0.0f}});
  EXPECT_ELEMENTS(cov(x), {1, -1, -1, 1}, 1e-6);
  EXPECT_ELEMENTS(cov(x, {.bias = true}), {2.0 / 3, -2.0 / 3, -2.0 / 3, 2.0 / 3}, 1e-6);
  EXPECT_EQ(cov(x, CovarianceOptions{.rowvar = false}).shape(), (Shape{3, 3}));
  EXPECT_ELEMENTS(cov(at(x, 0), at(x, 1)), {1, -1, -1, 1}, 1e-6);
  EXPECT_ELEMENTS(cov(array({1.0f, 5.0f})), {8}, 1e-5);
  EXPECT_ELEMENTS(cov(array({1.0f, 5.0f}), CovarianceOptions{.fweights = array({2, 2})}), {16.0 / 3}, 1e-5);
  // One weight counts like another if all are equal.
  EXPECT_ELEMENTS(cov(x, CovarianceOptions{.aweights = array({2, 2, 2})}), {1, -1, -1, 1}, 1e-5);
  EXPECT_ELEMENTS(corrcoef(x), {1, -1, -1, 1}, 1e-6);
  EXPECT_ELEMENTS(corrcoef(at(x, 0), array({1.0f, 3.0f, 5.0f})), {1, 1, 1, 1}, 1e-6);
}

TEST(Orders, OfSeveralKeys) {
  const Array primary = array({1, 0, 1, 0}), secondary = array({5, 9, 2, 8});
  EXPECT_TEXT(lexsort({secondary, primary}), "i32[4] [3, 1, 2, 0]");
  const Array x = array({7, 2, 9, 1, 5}), parted = partition(x, 2);
  EXPECT_EQ(at(parted, 2).item<int>(), 5);
  EXPECT_TEXT(take(x, argpartition(x, -1)), parted.to_string());
  EXPECT_THROWS(partition(x, 5), Error, "argpartition: position 5 is out of range for dimension 0 of [5]");
  EXPECT_THROWS(lexsort({}), Error, "lexsort: no keys given");
}

TEST(Sort, PutsNanFirstIfDescending) {
  const Array x = array({1.0f, kStatisticsNan, 3.0f});
  EXPECT_TEXT(isnan(sort(x, 0, true)), "bool[3] [true, false, false]");
  EXPECT_TEXT(argsort(x, 0, true), "i32[3] [1, 2, 0]");
  EXPECT_TEXT(argsort(x), "i32[3] [0, 2, 1]");
  EXPECT_TEXT(top_k(x, 2).second, "i32[2] [1, 2]");
}

}  // namespace
}  // namespace lockstep
