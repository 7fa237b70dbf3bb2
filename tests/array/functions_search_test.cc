#include "lockstep/search.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/indexing.h"
#include "lockstep/jit.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

std::vector<float> random_floats(int64_t n, uint32_t seed, int range = 20) {
  std::mt19937 random(seed);
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<float>(std::uniform_int_distribution<int>(-range, range)(random)) / 2);
  return out;
}

TEST(Segments, CombineSlicesWithOneId) {
  const Array ids = array({2, 0, 2, -1, 9}), data = array({1.f, 2.f, 3.f, 4.f, 5.f});
  EXPECT_TEXT(segment_sum(data, ids, 4), "f32[4] [2, 0, 4, 0]");
  EXPECT_TEXT(segment_prod(data, ids, 4), "f32[4] [2, 1, 3, 1]");
  EXPECT_TEXT(segment_max(data, ids, 4), "f32[4] [2, -inf, 3, -inf]");
  EXPECT_TEXT(segment_min(data, ids, 4), "f32[4] [2, inf, 1, inf]");
  EXPECT_EQ(segment_sum(data, ids).shape(), (Shape{10}));
  EXPECT_TEXT(segment_max(array({{1, 5}, {3, 2}}), array({1, 1}), 2, true),
              "i32[2,2] [[-2147483648, -2147483648], [3, 5]]");
  EXPECT_TEXT(segment_sum(array({true, true}), array({0, 0}), 1), "i32[1] [2]");
  EXPECT_TEXT(segment_min(zeros({0, 2}), zeros({0}, i32), 1), "f32[1,2] [[inf, inf]]");
  EXPECT_TEXT(grad([&](const Array& d) { return sum(segment_prod(d, ids, 3)); })(data), "f32[5] [3, 1, 1, 0, 0]");
  EXPECT_THROWS(segment_sum(data, array({1}), 2), Error, "segment_sum: ids [1] for data [5]; give one id");
  EXPECT_THROWS(segment_sum(data, data, 2), Error, "segment_sum: the ids are f32[5]; ids must be integers");
  EXPECT_THROWS(segment_max(data, ids, -1), Error, "segment_max: -1 segments; the number must not be negative");
  EXPECT_THROWS(jit([&](const Array& i) { return segment_sum(data, i); })(ids), Error,
                "segment_sum: the ids i32[5] are traced, so the number of segments is not known");
}

TEST(PutAlongAxis, IsTheInverseOfTake) {
  const Array x = array({{1, 2, 3}, {4, 5, 6}});
  EXPECT_TEXT(put_along_axis(x, array({{0}, {-1}}), 9, 1), "i32[2,3] [[9, 2, 3], [4, 5, 9]]");
  EXPECT_TEXT(put_along_axis(x, array({{1, 0, 7}}), array({{7, 8, 9}}), 0), "i32[2,3] [[1, 8, 3], [7, 5, 6]]");
  const Array order = argsort(-x, 1);
  EXPECT_TEXT(put_along_axis(zeros_like(x), order, take_along_axis(x, order, 1), 1), "i32[2,3] [[1, 2, 3], [4, 5, 6]]");
  EXPECT_THROWS(put_along_axis(x, array({1}), 0, 0), Error,
                "put_along_axis: indices [1] for x [2, 3]; both must have the same number");
}

TEST(Nonzero, ListsPlacesWithAndWithoutSize) {
  const Array x = array({{0, 3, 0}, {4, 0, 5}});
  EXPECT_TEXT(nonzero(x)[0], "i32[3] [0, 1, 1]");
  EXPECT_TEXT(nonzero(x)[1], "i32[3] [1, 0, 2]");
  EXPECT_TEXT(nonzero(x, {.size = 4, .fill_value = -1})[1], "i32[4] [1, 0, 2, -1]");
  EXPECT_TEXT(nonzero(x, {.size = 2})[0], "i32[2] [0, 1]");
  EXPECT_TEXT(flatnonzero(x), "i32[3] [1, 3, 5]");
  EXPECT_TEXT(jit([](const Array& y) { return flatnonzero(y, {.size = 5}); })(x), "i32[5] [1, 3, 5, 0, 0]");
  EXPECT_TEXT(argwhere(x), "i32[3,2] [[0, 1], [1, 0], [1, 2]]");
  EXPECT_TEXT(flatnonzero(array({NAN, 0.f, -0.f})), "i32[1] [0]");
  EXPECT_TEXT(flatnonzero(zeros({0})), "i32[0] []");
  EXPECT_TEXT(flatnonzero(zeros({0}), {.size = 2, .fill_value = 7}), "i32[2] [7, 7]");
  EXPECT_TEXT(vmap([](const Array& y) { return flatnonzero(y, {.size = 2, .fill_value = 9}); })(x),
              "i32[2,2] [[1, 9], [0, 2]]");
  EXPECT_THROWS(jit([](const Array& y) { return flatnonzero(y); })(x), Error,
                "flatnonzero: the array is traced, so the number of results is not known; pass {.size = n}");
  EXPECT_THROWS(nonzero(x, {.size = -2}), Error, "nonzero: size -2; the size must not be negative");
  EXPECT_THROWS(nonzero(Array(1)), Error, "nonzero: i32[] has no dimensions");
}

TEST(Compress, SelectsSlicesByACondition) {
  const Array x = array({{1, 2, 3}, {4, 5, 6}}), c = array({false, true});
  EXPECT_TEXT(compress(c, x, 0), "i32[1,3] [[4, 5, 6]]");
  EXPECT_TEXT(compress(c, x, -1), "i32[2,1] [[2], [5]]");
  EXPECT_TEXT(compress(c, x), "i32[1] [2]");
  EXPECT_TEXT(compress(c, x, 0, {.size = 2, .fill_value = 8}), "i32[2,3] [[4, 5, 6], [8, 8, 8]]");
  EXPECT_TEXT(extract(x > 2, x), "i32[4] [3, 4, 5, 6]");
  EXPECT_TEXT(jit([](const Array& y) { return extract(y > 4, y, {.size = 3}); })(x), "i32[3] [5, 6, 0]");
  EXPECT_THROWS(compress(x, x, 0), Error, "compress: the condition is i32[2,3]; it must have one dimension");
  EXPECT_THROWS(compress(array({1, 1, 1}), x, 0), Error, "compress: a condition [3] for dimension 0 of [2, 3]");
  EXPECT_THROWS(extract(c, x), Error, "extract: a condition [2] for [2, 3]; both must have the same number");
}

TEST(SearchSorted, MatchesBinarySearch) {
  for (const int64_t n : {0, 1, 2, 7, 8, 100}) {
    std::vector<float> a = random_floats(n, 1), v = random_floats(40, 2, 25);
    std::sort(a.begin(), a.end());
    v.insert(v.end(), {-INFINITY, INFINITY, -0.f});
    const Array sorted = Array::from(a, {n}), values = Array::from(v, {static_cast<int64_t>(v.size())});
    std::vector<double> left, right;
    for (const float x : v) {
      left.push_back(static_cast<double>(std::lower_bound(a.begin(), a.end(), x) - a.begin()));
      right.push_back(static_cast<double>(std::upper_bound(a.begin(), a.end(), x) - a.begin()));
    }
    EXPECT_ELEMENTS(searchsorted(sorted, values), left, 0);
    EXPECT_ELEMENTS(jit([&](const Array& x) { return searchsorted(sorted, x, Side::right); })(values), right, 0);
  }
  const Array with_nan = array({1.f, 2.f, NAN, NAN});
  EXPECT_TEXT(searchsorted(with_nan, array({NAN, 3.f})), "i32[2] [2, 2]");
  EXPECT_TEXT(searchsorted(with_nan, NAN, Side::right), "i32[] 4");
  EXPECT_TEXT(searchsorted(array({1, 3}), array({{2, 9}})), "i32[1,2] [[1, 2]]");
  EXPECT_THROWS(searchsorted(zeros({2, 2}), 1), Error, "searchsorted: the sorted array is f32[2,2]");
}

TEST(Digitize, FindsBinsInEitherOrder) {
  const Array x = array({0.2f, 1.f, 3.f, 9.f}), bins = array({0.f, 1.f, 3.f});
  EXPECT_TEXT(digitize(x, bins), "i32[4] [1, 2, 3, 3]");
  EXPECT_TEXT(digitize(x, bins, true), "i32[4] [1, 1, 2, 3]");
  EXPECT_TEXT(digitize(x, flip(bins)), "i32[4] [2, 1, 0, 0]");
  EXPECT_TEXT(digitize(x, flip(bins), true), "i32[4] [2, 2, 1, 0]");
  EXPECT_TEXT(digitize(x, zeros({0})), "i32[4] [0, 0, 0, 0]");
  EXPECT_THROWS(digitize(x, Array(1)), Error, "digitize: the bins are i32[]");
}

TEST(Unique, SortsCountsAndFindsElements) {
  const Unique u = unique_all(array({{3, 1, 3}, {1, 1, 7}}));
  EXPECT_TEXT(u.values, "i32[3] [1, 3, 7]");
  EXPECT_TEXT(u.indices, "i32[3] [1, 0, 5]");
  EXPECT_TEXT(u.inverse_indices, "i32[2,3] [[1, 0, 1], [0, 0, 2]]");
  EXPECT_TEXT(u.counts, "i32[3] [3, 2, 1]");
  const auto sized = jit([](const Array& x) {
    const Unique each = unique_all(x, {.size = 4, .fill_value = -1});
    return std::pair{each.values, each.counts};
  })(array({5, 2, 5}));
  EXPECT_TEXT(sized.first, "i32[4] [2, 5, -1, -1]");
  EXPECT_TEXT(sized.second, "i32[4] [1, 2, 0, 0]");
  EXPECT_TEXT(unique(array({5, 2, 5}), {.size = 3}), "i32[3] [2, 5, 2]");
  EXPECT_TEXT(unique(array({5, 2, 9}), {.size = 2}), "i32[2] [2, 5]");
  EXPECT_TEXT(unique(array({NAN, 1.f, NAN, -0.f, 0.f})), "f32[3] [-0, 1, nan]");
  EXPECT_TEXT(unique(zeros({0})), "f32[0] []");
  EXPECT_TEXT(unique(array({true, false, true})), "bool[2] [false, true]");
  EXPECT_THROWS(jit([](const Array& x) { return unique(x); })(zeros({3})), Error,
                "unique: the array is traced, so the number of results is not known");
}

TEST(Sets, CombineDifferentElements) {
  const Array a = array({3, 1, 1, 5}), b = array({5, 2, 3, 3});
  EXPECT_TEXT(isin(a, b), "bool[4] [true, false, false, true]");
  EXPECT_TEXT(isin(reshape(a, {2, 2}), b, false, true), "bool[2,2] [[false, true], [true, false]]");
  EXPECT_TEXT(isin(array({NAN}), array({NAN})), "bool[1] [false]");
  EXPECT_TEXT(isin(a, zeros({0}, i32)), "bool[4] [false, false, false, false]");
  EXPECT_TEXT(union1d(a, b), "i32[4] [1, 2, 3, 5]");
  EXPECT_TEXT(intersect1d(a, b), "i32[2] [3, 5]");
  EXPECT_TEXT(setdiff1d(a, b), "i32[1] [1]");
  EXPECT_TEXT(setxor1d(a, b), "i32[2] [1, 2]");
  EXPECT_TEXT(
      jit([](const Array& x, const Array& y) { return intersect1d(x, y, {.size = 3, .fill_value = -7}); })(a, b),
      "i32[3] [3, 5, -7]");
  EXPECT_TEXT(union1d(a, b, {.size = 5}), "i32[5] [1, 2, 3, 5, 1]");
  EXPECT_TEXT(setdiff1d(array({1.5f}), array({1})), "f32[1] [1.5]");
}

TEST(Bincount, CountsAndWeighs) {
  const Array x = array({1, 3, 1, -4});
  EXPECT_TEXT(bincount(x), "i32[4] [1, 2, 0, 1]");
  EXPECT_TEXT(bincount(x, {.minlength = 6}), "i32[6] [1, 2, 0, 1, 0, 0]");
  EXPECT_TEXT(bincount(x, {.length = 2}), "i32[2] [1, 2]");
  EXPECT_TEXT(bincount(x, {.weights = array({0.5f, 2.f, 0.25f, 9.f}), .length = 3}), "f32[3] [9, 0.75, 0]");
  EXPECT_TEXT(jit([](const Array& y) { return bincount(y, {.length = 3}); })(x), "i32[3] [1, 2, 0]");
  EXPECT_TEXT(bincount(zeros({0}, i32)), "i32[0] []");
  EXPECT_THROWS(bincount(zeros({3})), Error, "bincount: x is f32[3]; it must be integers of one dimension");
  EXPECT_THROWS(bincount(x, {.weights = zeros({2})}), Error, "bincount: weights [2] for x [4]");
  EXPECT_THROWS(bincount(x, {.minlength = -1}), Error, "bincount: minlength -1");
  EXPECT_THROWS(jit([](const Array& y) { return bincount(y); })(x), Error, "bincount: x is traced");
}

TEST(Histogram, CountsInBins) {
  const Array x = array({0.f, 0.5f, 1.f, 2.f, 2.f, NAN, 7.f});
  const auto [counts, edges] = histogram(x, 2, {.range = std::pair{0.0, 2.0}});
  EXPECT_TEXT(counts, "f32[2] [2, 3]");
  EXPECT_TEXT(edges, "f32[3] [0, 1, 2]");
  EXPECT_TEXT(histogram(x, array({0.f, 1.f, 10.f}), {.density = true}).first, "f32[2] [0.3333333, 0.07407407]");
  EXPECT_TEXT(histogram(array({1, 2, 2}), 1, {.weights = array({1.f, 2.f, 4.f})}).first, "f32[1] [7]");
  EXPECT_TEXT(histogram_bin_edges(array({3, 3}), 2), "f32[3] [2.5, 3, 3.5]");
  EXPECT_TEXT(histogram_bin_edges(array({1, 5}), 4), "f32[5] [1, 2, 3, 4, 5]");
  EXPECT_TEXT(histogram_bin_edges(zeros({0}), 2), "f32[3] [0, 0.5, 1]");
  const Histogram2d h = histogram2d(array({0.f, 1.f, 1.f}), array({0.f, 2.f, 2.f}), 2);
  EXPECT_TEXT(h.counts, "f32[2,2] [[1, 0], [0, 2]]");
  EXPECT_TEXT(h.y_edges, "f32[3] [0, 1, 2]");
  EXPECT_THROWS(histogram(x, 0), Error, "histogram_bin_edges: 0 bins; give at least 1");
  EXPECT_THROWS(histogram(x, 3, {.range = std::pair{2.0, 1.0}}), Error, "the range is 2 to 1");
  EXPECT_THROWS(histogram(x, zeros({1})), Error, "histogram: the edges are f32[1]");
  EXPECT_THROWS(histogram(x, 3, {.range = std::pair{0.0, 1.0}, .weights = zeros({2})}), Error,
                "histogram: weights [2] for elements [7]");
  EXPECT_THROWS(histogram2d(x, zeros({2})), Error, "histogram2d: x is [7] and y is [2]");
}

TEST(IndexLists, ConvertBetweenForms) {
  EXPECT_TEXT(choose(array({1, 0, 1}), {array({1, 2, 3}), 9}), "i32[3] [9, 2, 9]");
  EXPECT_TEXT(choose(array({-1, 5}), {1, 2, 3}, RangeMode::wrap), "i32[2] [3, 3]");
  EXPECT_TEXT(choose(array({-1, 5}), {1, 2, 3}, RangeMode::clip), "i32[2] [1, 3]");
  EXPECT_THROWS(choose(array({2}), {1, 2}), Error, "choose: an index is out of range for extent 2; valid: 0 to 1");
  EXPECT_THROWS(choose(array({0.f}), {1, 2}), Error, "choose: the indices are f32[1]");
  EXPECT_THROWS(choose(array({0}), {}), Error, "choose: no choices");
  EXPECT_THROWS(jit([](const Array& i) {
                  return choose(i, {1, 2});
                })(array({0})),
                Error, "choose: the indices i32[1] are traced, so RangeMode::raise cannot check them");
  EXPECT_TEXT(ravel_multi_index({array({1, 0}), array({2, 1})}, {2, 3}), "i32[2] [5, 1]");
  EXPECT_TEXT(ravel_multi_index({array({-1, 9}), array({2, 1})}, {2, 3}, RangeMode::clip), "i32[2] [2, 4]");
  EXPECT_THROWS(ravel_multi_index({array({1})}, {2, 3}), Error, "ravel_multi_index: 1 index arrays for shape [2, 3]");
  const std::vector<Array> places = unravel_index(array({5, -1, 99, 1}), {2, 3});
  EXPECT_TEXT(places[0], "i32[4] [1, 1, 1, 0]");
  EXPECT_TEXT(places[1], "i32[4] [2, 2, 2, 1]");
  EXPECT_THROWS(unravel_index(zeros({2}), {3}), Error, "unravel_index: the indices are f32[2]");
  const auto [i, j] = tril_indices(3, -1);
  EXPECT_TEXT(i, "i32[3] [1, 2, 2]");
  EXPECT_TEXT(j, "i32[3] [0, 0, 1]");
  EXPECT_TEXT(triu_indices(2, 0, 3).second, "i32[5] [0, 1, 2, 1, 2]");
  EXPECT_THROWS(tril_indices(-1), Error, "tril_indices: an array [-1, -1]");
  EXPECT_TEXT(diag_indices(3)[1], "i32[3] [0, 1, 2]");
  EXPECT_THROWS(diag_indices(2, 0), Error, "diag_indices: extent 2 and 0 dimensions");
  const std::vector<Array> open = ix_({array({1, 0}), array({false, true, true})});
  EXPECT_TEXT(reshape(arange(6), {2, 3})(open[0], open[1]), "i32[2,2] [[4, 5], [1, 2]]");
  EXPECT_THROWS(ix_({zeros({2, 2}, i32)}), Error, "ix_: array 0 is i32[2,2]; all arrays must have one dimension");
}

}  // namespace
}  // namespace lockstep
