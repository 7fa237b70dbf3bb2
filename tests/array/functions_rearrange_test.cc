#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

Array six() { return reshape(arange(6), {2, 3}); }

TEST(Reshape, InfersOneExtent) {
  EXPECT_TEXT(six(), "i32[2,3] [[0, 1, 2], [3, 4, 5]]");
  EXPECT_TEXT(reshape(six(), {3, -1}), "i32[3,2] [[0, 1], [2, 3], [4, 5]]");
  EXPECT_EQ(reshape(six(), {-1}).shape(), (Shape{6}));
  EXPECT_EQ(reshape(zeros({0, 3}), {-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_EQ(ravel(six()).shape(), (Shape{6}));
  EXPECT_EQ(ravel(Array(1)).shape(), (Shape{1}));
  EXPECT_EQ(flatten(zeros({2, 3, 4}), 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(zeros({2, 3, 4}), -2).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten(zeros({2, 3})).shape(), (Shape{6}));
}

// Memory shared by two arrays is not overwritten when one of them is donated.
TEST(Reshape, SharedMemorySurvivesDonation) {
  const auto plus_one = jit([](Array x) { return x + 1; }, {.donate = {0}});
  for (const bool first : {true, false}) {
    const Array x = six() * 2, y = reshape(x, {6}), z = expand_dims(y, 0);
    EXPECT_TEXT(z, "i32[1,6] [[0, 2, 4, 6, 8, 10]]");
    const Array more = plus_one(first ? x : y);
    EXPECT_TEXT(reshape(more, {-1}), "i32[6] [1, 3, 5, 7, 9, 11]");
    EXPECT_TEXT(first ? y : ravel(x), "i32[6] [0, 2, 4, 6, 8, 10]");
    EXPECT_TEXT(squeeze(z), "i32[6] [0, 2, 4, 6, 8, 10]");
    EXPECT_THROWS(reshape(first ? x : y, {3, 2}), Error, "was donated");
  }
}

TEST(Reshape, RejectsMismatchedShapes) {
  EXPECT_THROWS(reshape(six(), {4, 2}), Error, "reshape: [2, 3] has 6 elements, but [4, 2] has 8");
  EXPECT_THROWS(reshape(six(), {4, -1}), Error, "reshape: [2, 3] has 6 elements, not divisible into [4, -1]");
  EXPECT_THROWS(reshape(six(), {-1, -1}), Error, "reshape: [-1, -1] has 2 extents of -1; only one can be inferred");
  EXPECT_THROWS(reshape(zeros({0}), {0, -1}), Error, "not divisible into [0, -1]");
  EXPECT_THROWS(flatten(six(), 2), Error, "flatten: axis 2 is out of range for [2, 3]; valid axes: -2 to 1");
}

TEST(Transpose, ReversesOrPermutes) {
  EXPECT_TEXT(transpose(six()), "i32[3,2] [[0, 3], [1, 4], [2, 5]]");
  const Array x = zeros({2, 3, 4});
  EXPECT_EQ(transpose(x).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(transpose(x, {1, -1, 0}).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(swapaxes(x, 0, -1).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(moveaxis(x, 0, -1).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(moveaxis(x, -1, 0).shape(), (Shape{4, 2, 3}));
  EXPECT_THROWS(transpose(x, {0, 1}), Error, "transpose: the permutation [0, 1] has 2 axes, but [2, 3, 4] has 3");
  EXPECT_THROWS(transpose(x, {0, 1, 1}), Error, "transpose: axis 1 of [2, 3, 4] is given twice");
  EXPECT_THROWS(swapaxes(x, 0, 3), Error, "swapaxes: axis 3 is out of range for [2, 3, 4]");
  EXPECT_THROWS(moveaxis(Array(1), 0, 0), Error, "moveaxis: axis 0 is out of range; a scalar has no axes");
}

TEST(Dimensions, ExpandAndSqueeze) {
  EXPECT_EQ(expand_dims(six(), 0).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(expand_dims(six(), -1).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(squeeze(zeros({1, 2, 1})).shape(), (Shape{2}));
  EXPECT_EQ(squeeze(zeros({1, 2, 1}), -1).shape(), (Shape{1, 2}));
  EXPECT_EQ(squeeze(zeros({1, 2, 1}), {0, 2}).shape(), (Shape{2}));
  EXPECT_THROWS(expand_dims(six(), 4), Error,
                "expand_dims: axis 4 is out of range for a result with 3 dimensions; valid axes: -3 to 2");
  EXPECT_THROWS(squeeze(six(), 0), Error,
                "squeeze: dimension 0 of [2, 3] has extent 2; only dimensions of extent 1 can be removed");
}

TEST(BroadcastTo, RepeatsByNumPysRules) {
  EXPECT_TEXT(broadcast_to(array({1, 2}), {2, 2}), "i32[2,2] [[1, 2], [1, 2]]");
  EXPECT_TEXT(broadcast_to(array({{1}, {2}}), {2, 2}), "i32[2,2] [[1, 1], [2, 2]]");
  EXPECT_TEXT(broadcast_to(3, {2}), "i32[2] [3, 3]");
  EXPECT_THROWS(broadcast_to(six(), {3, 3}), Error, "broadcast_to: shape [2, 3] does not broadcast to [3, 3]");
  EXPECT_THROWS(broadcast_to(six(), {3}), Error, "broadcast_to: shape [2, 3] does not broadcast to [3]");
}

TEST(Concatenate, JoinsAndPromotes) {
  EXPECT_TEXT(concatenate({six(), six()}, -1), "i32[2,6] [[0, 1, 2, 0, 1, 2], [3, 4, 5, 3, 4, 5]]");
  EXPECT_TEXT(concatenate({array({1}), array({2.5f})}), "f32[2] [1, 2.5]");
  EXPECT_TEXT(stack({array({1, 2}), array({3, 4})}), "i32[2,2] [[1, 2], [3, 4]]");
  EXPECT_TEXT(stack({array({1, 2}), array({3, 4})}, -1), "i32[2,2] [[1, 3], [2, 4]]");
  EXPECT_TEXT(stack({Array(1), Array(2.5f)}), "f32[2] [1, 2.5]");
  EXPECT_THROWS(concatenate({six(), zeros({2, 3, 1})}), Error, "concatenate: shapes [2, 3] and [2, 3, 1] along axis 0");
  EXPECT_THROWS(concatenate({six(), zeros({2, 4})}), Error,
                "concatenate: shapes [2, 3] and [2, 4] along axis 0; all other dimensions");
  EXPECT_THROWS(concatenate({}), Error, "concatenate: no arrays given; pass at least one");
  EXPECT_THROWS(stack({array({1}), array({1, 2})}), Error,
                "stack: shapes [1] and [2] differ; all arrays must have the same shape");
  EXPECT_THROWS(stack({array({1})}, 2), Error, "stack: axis 2 is out of range for a result with 2 dimensions");
}

TEST(Split, IntoEqualPiecesOrAtPositions) {
  const auto halves = split(arange(4), 2);
  ASSERT_EQ(halves.size(), 2u);
  EXPECT_TEXT(halves[1], "i32[2] [2, 3]");
  const auto columns = split(six(), 3, -1);
  EXPECT_TEXT(columns[2], "i32[2,1] [[2], [5]]");
  const auto uneven = split_at(arange(5), {1, 3});
  ASSERT_EQ(uneven.size(), 3u);
  EXPECT_TEXT(uneven[0], "i32[1] [0]");
  EXPECT_TEXT(uneven[2], "i32[2] [3, 4]");
  const auto rows = unstack(six());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TEXT(rows[1], "i32[3] [3, 4, 5]");
  EXPECT_THROWS(split(arange(5), 2), Error,
                "split: dimension 0 of [5] has extent 5, not divisible into 2 parts; use split_at");
  EXPECT_THROWS(split_at(arange(5), {3, 1}), Error, "split_at: position 1 after 3 along dimension 0 of [5]");
}

TEST(Repetition, TileAndRepeat) {
  EXPECT_TEXT(tile(array({1, 2}), {2}), "i32[4] [1, 2, 1, 2]");
  EXPECT_TEXT(tile(array({1, 2}), {2, 1}), "i32[2,2] [[1, 2], [1, 2]]");
  EXPECT_TEXT(tile(array({{1}, {2}}), {2}), "i32[2,2] [[1, 1], [2, 2]]");
  EXPECT_TEXT(repeat(array({1, 2}), 2, 0), "i32[4] [1, 1, 2, 2]");
  EXPECT_TEXT(repeat(six(), 2, -1), "i32[2,6] [[0, 0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]");
  EXPECT_THROWS(tile(array({1}), {-1}), Error, "tile: -1 repeats along dimension 0");
  EXPECT_THROWS(repeat(array({1}), -1, 0), Error, "repeat: -1 repeats; the number must not be negative");
}

TEST(Pad, SurroundsWithAValue) {
  EXPECT_TEXT(pad(array({1, 2}), {{1, 2}}), "i32[5] [0, 1, 2, 0, 0]");
  EXPECT_TEXT(pad(array({1.0f, 2.0f}), {{1, -1}}, 9), "f32[2] [9, 1]");
  EXPECT_TEXT(pad(array({{1}}), {{1, 0}, {0, 1}}, 7), "i32[2,2] [[7, 7], [1, 7]]");
  EXPECT_THROWS(pad(six(), {{1, 1}}), Error,
                "pad: 1 widths for [2, 3]; pass {before, after} for each of its 2 dimensions");
  EXPECT_THROWS(pad(array({1}), {{1, 1}}, array({1})), Error, "pad: the value is i32[1]; it must be a scalar");
}

TEST(Flip, ReversesAxes) {
  EXPECT_TEXT(flip(six()), "i32[2,3] [[5, 4, 3], [2, 1, 0]]");
  EXPECT_TEXT(flip(six(), -1), "i32[2,3] [[2, 1, 0], [5, 4, 3]]");
  EXPECT_THROWS(flip(six(), 2), Error, "flip: axis 2 is out of range");
}

TEST(Roll, WrapsAround) {
  EXPECT_TEXT(roll(arange(5), 2), "i32[5] [3, 4, 0, 1, 2]");
  EXPECT_TEXT(roll(arange(5), -6), "i32[5] [1, 2, 3, 4, 0]");
  EXPECT_TEXT(roll(six(), 1), "i32[2,3] [[5, 0, 1], [2, 3, 4]]");
  EXPECT_TEXT(roll(six(), 1, -1), "i32[2,3] [[2, 0, 1], [5, 3, 4]]");
  EXPECT_TEXT(roll(six(), 3, 0), "i32[2,3] [[3, 4, 5], [0, 1, 2]]");
  EXPECT_TEXT(roll(zeros({0}), 3, 0), "f32[0] []");
  EXPECT_THROWS(roll(six(), 1, 2), Error, "roll: axis 2 is out of range");
}

TEST(Triangles, KeepOneSideOfADiagonal) {
  EXPECT_TEXT(tril(six() + 1), "i32[2,3] [[1, 0, 0], [4, 5, 0]]");
  EXPECT_TEXT(tril(six() + 1, -1), "i32[2,3] [[0, 0, 0], [4, 0, 0]]");
  EXPECT_TEXT(triu(six() + 1), "i32[2,3] [[1, 2, 3], [0, 5, 6]]");
  EXPECT_TEXT(triu(six() + 1, 1), "i32[2,3] [[0, 2, 3], [0, 0, 6]]");
  EXPECT_TEXT(tril(ones({2, 1, 2})), "f32[2,1,2] [[[1, 0]], [[1, 0]]]");
  EXPECT_TEXT(vmap([](Array x) { return triu(x); })(ones({1, 2, 2})), "f32[1,2,2] [[[1, 1], [0, 1]]]");
  EXPECT_THROWS(tril(arange(3)), Error, "tril: [3] has fewer than two dimensions");
}

TEST(Slice, NegativeLimitsCountFromTheEnd) {
  EXPECT_TEXT(slice(arange(6), {1}, {-1}), "i32[4] [1, 2, 3, 4]");
  EXPECT_TEXT(slice(arange(6), {0}, {100}, {2}), "i32[3] [0, 2, 4]");
  EXPECT_TEXT(slice(six(), {1}, {2}), "i32[1,3] [[3, 4, 5]]");
  EXPECT_TEXT(slice(six(), {0, -2}, {2, 3}), "i32[2,2] [[1, 2], [4, 5]]");
  EXPECT_EQ(slice(arange(6), {4}, {2}).shape(), (Shape{0}));
  EXPECT_THROWS(slice(arange(6), {0}, {6}, {-1}), Error,
                "slice: the stride of dimension 0 is -1; strides must be positive: use flip");
  EXPECT_THROWS(slice(arange(6), {0, 0}, {6}), Error, "slice: 2 starts, 1 limits and 0 strides for [6]");
}

// Every box of an array, contiguous or not.
TEST(Slice, TakesAnyBox) {
  const Array x = reshape(arange(2 * 2 * 3), {2, 2, 3});
  const auto ranges = [](int64_t n) {
    std::vector<Range> out;
    for (int64_t begin = 0; begin <= n; ++begin)
      for (int64_t end = begin; end <= n; ++end) out.push_back({begin, end});
    return out;
  };
  for (const Range i : ranges(2))
    for (const Range j : ranges(2))
      for (const Range k : ranges(3)) {
        if (i.size() * j.size() == 0 && k.size() > 0) continue;  // one kind of empty box is enough
        std::vector<int32_t> wanted;
        for (int64_t a = i.begin; a < i.end; ++a)
          for (int64_t b = j.begin; b < j.end; ++b)
            for (int64_t c = k.begin; c < k.end; ++c) wanted.push_back(static_cast<int32_t>((a * 2 + b) * 3 + c));
        const Array got = slice(x, {i.begin, j.begin, k.begin}, {i.end, j.end, k.end});
        EXPECT_EQ(got.shape(), (Shape{i.size(), j.size(), k.size()}));
        EXPECT_EQ(got.to_vector<int32_t>(), wanted);
      }
}

// A slice shares no memory with its source.
TEST(Slice, IsACopy) {
  const Array x = six() * 1, row = at(x, 1), both = slice(x, {0}, {2});
  const auto minus = jit([](Array a) { return -a; }, {.donate = {0}});
  EXPECT_TEXT(minus(x), "i32[2,3] [[0, -1, -2], [-3, -4, -5]]");
  EXPECT_TEXT(row, "i32[3] [3, 4, 5]");
  EXPECT_TEXT(both, "i32[2,3] [[0, 1, 2], [3, 4, 5]]");
  EXPECT_THROWS(at(x, 0), Error, "was donated");
  EXPECT_TEXT(minus(both), "i32[2,3] [[0, -1, -2], [-3, -4, -5]]");
  EXPECT_TEXT(row, "i32[3] [3, 4, 5]");
}

TEST(At, TakesOneSlice) {
  EXPECT_TEXT(at(six(), 1), "i32[3] [3, 4, 5]");
  EXPECT_TEXT(at(six(), -1, 1), "i32[2] [2, 5]");
  EXPECT_TEXT(at(six(), astype(Array(1), i32)), "i32[3] [3, 4, 5]");
  EXPECT_TEXT(at(six(), astype(Array(-1), i32), 1), "i32[2] [2, 5]");
  EXPECT_TEXT(at(six(), astype(Array(9), i64)), "i32[3] [3, 4, 5]");
  EXPECT_THROWS(at(six(), 2), Error, "at: index 2 is out of range for dimension 0 of [2, 3]; valid indices: -2 to 1");
  EXPECT_THROWS(at(six(), array({1})), Error, "at: the index is i32[1]; it must be a scalar: use take");
  EXPECT_THROWS(at(six(), Array(0.5f)), Error, "at: the indices are f32[]; indices must be integers");
}

TEST(DynamicSlice, StartsAreData) {
  const auto f = jit([](const Array& x, const Array& i) { return dynamic_slice(x, {i, 1}, {1, 2}); });
  EXPECT_TEXT(f(six(), astype(Array(1), i32)), "i32[1,2] [[4, 5]]");
  EXPECT_TEXT(f(six(), astype(Array(7), i32)), "i32[1,2] [[4, 5]]");
  EXPECT_TEXT(f(six(), full({}, int64_t{1} << 32)), "i32[1,2] [[4, 5]]");
  EXPECT_TEXT(f(six(), full({}, -(int64_t{1} << 32) + 1)), "i32[1,2] [[1, 2]]");
  EXPECT_TEXT(f(six(), full({}, uint32_t{1} << 31, u32)), "i32[1,2] [[4, 5]]");
  EXPECT_TEXT(dynamic_slice(six(), {-2, -2}, {1, 2}), "i32[1,2] [[1, 2]]");
  EXPECT_TEXT(dynamic_update_slice(six(), array({{8.0f, 9.0f}}), {1, 0}), "i32[2,3] [[0, 1, 2], [8, 9, 5]]");
  EXPECT_THROWS(dynamic_slice(six(), {0}, {1, 1}), Error,
                "dynamic_slice: 1 starts for [2, 3]; pass one for each of its 2");
  EXPECT_THROWS(dynamic_slice(six(), {0, array({1})}, {1, 1}), Error,
                "dynamic_slice: the start of dimension 1 is i32[1]");
  EXPECT_THROWS(dynamic_slice(six(), {0, 0.5f}, {1, 1}), Error, "dynamic_slice: the indices are f32[]");
}

TEST(Rearranging, HasGradients) {
  const auto f = [](const Array& x) {
    const Array y = concatenate({flip(x, 0), expand_dims(at(tile(x, {2, 1}), 1), 0)});
    return sum(pad(y, {{1, 1}, {0, 0}}, 1) * reshape(arange(15, f32), {5, 3}));
  };
  EXPECT_TEXT(grad(f)(astype(six(), f32)), "f32[2,3] [[6, 7, 8], [12, 14, 16]]");
}

}  // namespace
}  // namespace lockstep
