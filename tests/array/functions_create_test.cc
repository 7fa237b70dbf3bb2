#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/jit.h"

namespace lockstep {
namespace {

TEST(Create, ConstantsFillTheShape) {
  EXPECT_TEXT(zeros({2, 2}), "f32[2,2] [[0, 0], [0, 0]]");
  EXPECT_TEXT(ones({2}, i64), "i64[2] [1, 1]");
  EXPECT_TEXT(ones({}, boolean), "bool[] true");
  EXPECT_TEXT(zeros({0, 3}), "f32[0,3] []");
  EXPECT_TEXT(full({2}, 7), "i32[2] [7, 7]");
  EXPECT_TEXT(full({2}, 7, f32), "f32[2] [7, 7]");
  EXPECT_TEXT(full({2, 2}, array({1, 2})), "i32[2,2] [[1, 2], [1, 2]]");
  EXPECT_EQ(full({1}, 0.1, f64).item<double>(), 0.1);
  EXPECT_THROWS(full({2}, array({1, 2, 3})), Error, "full: shape [3] does not broadcast to [2]");
  EXPECT_THROWS(zeros({2, -1}), Error, "extent -1");
}

TEST(Create, LikeFunctionsKeepShapeAndType) {
  const Array x = array({{1, 2}});
  EXPECT_TEXT(zeros_like(x), "i32[1,2] [[0, 0]]");
  EXPECT_TEXT(ones_like(x, f32), "f32[1,2] [[1, 1]]");
  EXPECT_TEXT(full_like(x, 5), "i32[1,2] [[5, 5]]");
  EXPECT_TEXT(full_like(x, 0.5, f32), "f32[1,2] [[0.5, 0.5]]");
}

TEST(Create, EyeHasOnesOnTheDiagonal) {
  EXPECT_TEXT(eye(2), "f32[2,2] [[1, 0], [0, 1]]");
  EXPECT_TEXT(eye(2, 3, i32), "i32[2,3] [[1, 0, 0], [0, 1, 0]]");
  EXPECT_THROWS(eye(-1), Error, "eye: -1 elements requested");
}

TEST(Create, ArangeExcludesTheStop) {
  EXPECT_TEXT(arange(4), "i32[4] [0, 1, 2, 3]");
  EXPECT_TEXT(arange(2, 7, 2), "i32[3] [2, 4, 6]");
  EXPECT_TEXT(arange(5, 0, -2), "i32[3] [5, 3, 1]");
  EXPECT_TEXT(arange(3, 1), "i32[0] []");
  EXPECT_TEXT(arange(3.0), "f32[3] [0, 1, 2]");
  EXPECT_TEXT(arange(0, 1, 0.25), "f32[4] [0, 0.25, 0.5, 0.75]");
  EXPECT_TEXT(arange(3, f32), "f32[3] [0, 1, 2]");
  EXPECT_TEXT(arange(int64_t{1} << 40, (int64_t{1} << 40) + 2), "i64[2] [1099511627776, 1099511627777]");
  EXPECT_THROWS(arange(0, 5, 0), Error, "arange: the step is 0");
  EXPECT_THROWS(arange(0.0, 5.0, 0.0), Error, "arange: 0 to 5 in steps of 0 has no finite number");
}

TEST(Create, LinspaceIncludesBothEnds) {
  EXPECT_TEXT(linspace(0, 1, 5), "f32[5] [0, 0.25, 0.5, 0.75, 1]");
  EXPECT_TEXT(linspace(2, 3, 1), "f32[1] [2]");
  EXPECT_TEXT(linspace(2, 3, 0), "f32[0] []");
  EXPECT_EQ(linspace(0, 1, 11, f64).dtype(), f64);
  EXPECT_THROWS(linspace(0, 1, -1), Error, "linspace: -1 elements");
}

TEST(Create, NestedListsBecomeArrays) {
  EXPECT_TEXT(array({1, 2}), "i32[2] [1, 2]");
  EXPECT_TEXT(array({1.5, 2.5}), "f32[2] [1.5, 2.5]");
  EXPECT_TEXT(array({1.5, 2.5}, f64), "f64[2] [1.5, 2.5]");
  EXPECT_TEXT(array({1, 2}, f32), "f32[2] [1, 2]");
  EXPECT_TEXT(array({1, 2}, u8), "u8[2] [1, 2]");
  EXPECT_TEXT(array<float>({}), "f32[0] []");
  EXPECT_TEXT(array({1LL, 2LL}), "i64[2] [1, 2]");
  EXPECT_TEXT(array({1L, 2L}), "i64[2] [1, 2]");
  EXPECT_TEXT(array({-1.5, 255.9}, i32), "i32[2] [-1, 255]");
  EXPECT_TEXT(full({1}, 3e9, u32), "u32[1] [3000000000]");
  EXPECT_TEXT(full({1}, 0.5, boolean), "bool[1] [true]");
  EXPECT_TEXT(array({true, false}), "bool[2] [true, false]");
  EXPECT_TEXT(array({{1, 2, 3}, {4, 5, 6}}), "i32[2,3] [[1, 2, 3], [4, 5, 6]]");
  EXPECT_TEXT(array({{1.5f}}), "f32[1,1] [[1.5]]");
  EXPECT_TEXT(array({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}), "i32[2,2,2] [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]");
  EXPECT_THROWS(array({{1, 2}, {3}}), Error,
                "array: ragged lists: one has 1 elements, another 2; lists of one level must have equal lengths");
  EXPECT_THROWS(array({{{1}, {2}}, {{3}}}), Error, "array: ragged lists: one has 1 elements, another 2");
}

TEST(Create, WorksInsideJit) {
  const auto f = jit([](const Array& x) {
    return x + arange(3, f32) * full({3}, 2) + array({1.0, 1.0, 1.0}) + eye(3);
  });
  EXPECT_TEXT(f(zeros({3})), "f32[3,3] [[2, 3, 5], [1, 4, 5], [1, 3, 6]]");
}

}  // namespace
}  // namespace lockstep
