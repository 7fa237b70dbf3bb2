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

Array rows() { return array({{0, 1}, {10, 11}, {20, 21}}); }

TEST(Take, IndexDimensionsReplaceTheAxis) {
  EXPECT_TEXT(take(rows(), array({2, 0})), "i32[2,2] [[20, 21], [0, 1]]");
  EXPECT_TEXT(take(rows(), array({{1}, {0}}), 1), "i32[3,2,1] [[[1], [0]], [[11], [10]], [[21], [20]]]");
  EXPECT_TEXT(take(rows(), 1), "i32[2] [10, 11]");
  EXPECT_TEXT(take(rows(), array({-1, -3})), "i32[2,2] [[20, 21], [0, 1]]");
  EXPECT_TEXT(take(rows(), array({7, -9})), "i32[2,2] [[20, 21], [0, 1]]");
  EXPECT_TEXT(take(rows(), astype(array({2, 255}), u8)), "i32[2,2] [[20, 21], [20, 21]]");
  EXPECT_TEXT(take(rows(), astype(array({1}), u32)), "i32[1,2] [[10, 11]]");
  EXPECT_TEXT(take(rows(), astype(array({-2}), i64)), "i32[1,2] [[10, 11]]");
  EXPECT_EQ(take(rows(), zeros({0}, i32)).shape(), (Shape{0, 2}));
  EXPECT_THROWS(take(rows(), array({1.0f})), Error,
                "take: the indices are f32[1]; indices must be integers: use astype");
  EXPECT_THROWS(take(rows(), array({true})), Error, "take: the indices are bool[1]");
  EXPECT_THROWS(take(rows(), array({1}), 2), Error, "take: axis 2 is out of range for [3, 2]");
  EXPECT_THROWS(take(zeros({0, 2}), array({0})), Error,
                "take: dimension 0 of [0, 2] is empty; take needs at least one element");
}

TEST(Take, AlongAxisSelectsPerPosition) {
  EXPECT_TEXT(take_along_axis(rows(), array({{1}, {0}, {-1}}), 1), "i32[3,1] [[1], [10], [21]]");
  EXPECT_TEXT(take_along_axis(rows(), array({{2, 0}}), 0), "i32[1,2] [[20, 1]]");
  EXPECT_TEXT(take_along_axis(rows(), array({{1, 1, 0}}), -1), "i32[3,3] [[1, 1, 0], [11, 11, 10], [21, 21, 20]]");
  EXPECT_THROWS(take_along_axis(rows(), array({1}), 0), Error,
                "take_along_axis: indices [1] for x [3, 2]; both must have the same number");
  EXPECT_THROWS(take_along_axis(rows(), zeros({2, 1}, i32), 1), Error,
                "take_along_axis: shapes [3] and [2] do not broadcast");
}

TEST(ScatterAdd, AccumulatesAndDropsOutOfRange) {
  EXPECT_TEXT(scatter_add(zeros({3}), array({0, 2, 0, -1, 5}), array({1, 2, 3, 4, 5})), "f32[3] [4, 0, 6]");
  EXPECT_TEXT(scatter_add(rows(), array({1}), 100), "i32[3,2] [[0, 1], [110, 111], [20, 21]]");
  EXPECT_TEXT(scatter_add(rows(), array({0}), array({{1}, {2}, {3}}), 1), "i32[3,2] [[1, 1], [12, 11], [23, 21]]");
  EXPECT_THROWS(scatter_add(rows(), array({0}), zeros({3})), Error,
                "scatter_add: shape [3] does not broadcast to [1, 2]");
  EXPECT_THROWS(scatter_add(rows(), array({0.5f}), 1), Error, "scatter_add: the indices are f32[1]");
}

TEST(OneHot, MarksTheLabel) {
  EXPECT_TEXT(one_hot(array({1, 0, 3}), 3), "f32[3,3] [[0, 1, 0], [1, 0, 0], [0, 0, 0]]");
  EXPECT_TEXT(one_hot(1, 2, i32), "i32[2] [0, 1]");
  EXPECT_EQ(sum(one_hot(astype(array({44}), u8), 300)).item<float>(), 1.0f);
  EXPECT_THROWS(one_hot(array({1.0f}), 3), Error, "one_hot: the labels are f32[1]; labels must be integers");
  EXPECT_THROWS(one_hot(array({1}), -3), Error, "one_hot: -3 classes");
}

TEST(Sort, SortsAndReturnsIndices) {
  const Array x = array({{3.0f, 1.0f, 2.0f}, {0.0f, 5.0f, 0.0f}});
  EXPECT_TEXT(sort(x), "f32[2,3] [[1, 2, 3], [0, 0, 5]]");
  EXPECT_TEXT(sort(x, 0), "f32[2,3] [[0, 1, 0], [3, 5, 2]]");
  EXPECT_TEXT(sort(x, -1, true), "f32[2,3] [[3, 2, 1], [5, 0, 0]]");
  EXPECT_TEXT(argsort(x), "i32[2,3] [[1, 2, 0], [0, 2, 1]]");
  EXPECT_TEXT(argsort(x, -1, true), "i32[2,3] [[0, 2, 1], [1, 0, 2]]");
  EXPECT_TEXT(sort(array({true, false})), "bool[2] [false, true]");
  const auto [values, places] = top_k(x, 2);
  EXPECT_TEXT(values, "f32[2,2] [[3, 2], [5, 0]]");
  EXPECT_TEXT(places, "i32[2,2] [[0, 2], [1, 0]]");
  EXPECT_THROWS(sort(Array(1)), Error, "sort: axis -1 is out of range; a scalar has no axes");
  EXPECT_THROWS(argsort(x, 2), Error, "argsort: axis 2 is out of range");
  EXPECT_THROWS(top_k(x, 4), Error, "top_k: k is 4, but the last dimension has 3 elements in [2, 3]");
}

TEST(Indexing, HasGradients) {
  const Array x = array({1.0f, 2.0f, 3.0f}), places = array({2, 0, 2});
  EXPECT_TEXT(grad([&](const Array& v) {
                return sum(take(v, places) * array({1.0f, 2.0f, 3.0f}));
              })(x),
              "f32[3] [2, 0, 4]");
  const Array m = array({{1.0f, 2.0f}, {3.0f, 4.0f}});
  EXPECT_TEXT(grad([&](const Array& v) {
                return sum(take_along_axis(v, array({{1}, {0}}), 1));
              })(m),
              "f32[2,2] [[0, 1], [1, 0]]");
  EXPECT_TEXT(grad([&](const Array& v) { return sum(sort(v) * array({1.0f, 2.0f, 3.0f})); })(-x), "f32[3] [3, 2, 1]");
}

TEST(Indexing, IsBatchedByVmap) {
  const auto pick = [](const Array& row, const Array& i) { return take(row, i); };
  EXPECT_TEXT(vmap(pick)(rows(), array({1, 0, -1})), "i32[3] [1, 10, 21]");
  EXPECT_TEXT(vmap(pick, {.in_axes = {0, std::nullopt}})(rows(), array({1, 1})),
              "i32[3,2] [[1, 1], [11, 11], [21, 21]]");
}

}  // namespace
}  // namespace lockstep
