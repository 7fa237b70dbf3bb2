#include "lockstep/arrange.h"

#include "array/near.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/jit.h"
#include "lockstep/matrices.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"

namespace lockstep {
namespace {

Array grid() { return array({{0, 1, 2}, {3, 4, 5}}); }

TEST(Ranks, AreAtLeast) {
  EXPECT_EQ(atleast_1d(Array(1)).shape(), (Shape{1}));
  EXPECT_EQ(atleast_2d(arange(3)).shape(), (Shape{1, 3}));
  EXPECT_EQ(atleast_3d(arange(3)).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(atleast_3d(grid()).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(broadcast_shapes({{2, 1}, {3}, {1, 1, 1}}), (Shape{1, 2, 3}));
  EXPECT_THROWS(broadcast_shapes({{2}, {3}}), Error, "broadcast_shapes: shapes [2] and [3] do not broadcast");
  EXPECT_TEXT(broadcast_arrays({array({1, 2}), array({{3}, {4}})})[1], "i32[2,2] [[3, 3], [4, 4]]");
  const Array x = zeros({2, 3, 4, 5});
  EXPECT_EQ(moveaxis(x, {0, 1}, {-1, -2}).shape(), (Shape{4, 5, 3, 2}));
  EXPECT_EQ(rollaxis(x, 3, 1).shape(), (Shape{2, 5, 3, 4}));
  EXPECT_EQ(rollaxis(x, 0, 3).shape(), (Shape{3, 4, 2, 5}));
  EXPECT_TEXT(resize(array({1, 2, 3}), {2, 4}), "i32[2,4] [[1, 2, 3, 1], [2, 3, 1, 2]]");
  EXPECT_TEXT(resize(array<int>({}), {2}), "i32[2] [0, 0]");
}

TEST(Joining, AddsDimensionsFirst) {
  const Array a = array({1, 2}), b = array({3, 4});
  EXPECT_TEXT(hstack({a, b}), "i32[4] [1, 2, 3, 4]");
  EXPECT_TEXT(vstack({a, b}), "i32[2,2] [[1, 2], [3, 4]]");
  EXPECT_TEXT(column_stack({a, b}), "i32[2,2] [[1, 3], [2, 4]]");
  EXPECT_EQ(dstack({a, b}).shape(), (Shape{1, 2, 2}));
  EXPECT_TEXT(hstack({grid(), array({{9}, {8}})}), "i32[2,4] [[0, 1, 2, 9], [3, 4, 5, 8]]");
  EXPECT_TEXT(block({{full({2, 1}, 1), grid()}, {array({{7, 7, 7, 7}})}}),
              "i32[3,4] [[1, 0, 1, 2], [1, 3, 4, 5], [7, 7, 7, 7]]");
  EXPECT_TEXT(append(grid(), array({6, 7})), "i32[8] [0, 1, 2, 3, 4, 5, 6, 7]");
  EXPECT_TEXT(append(grid(), array({{6, 7, 8}}), 0), "i32[3,3] [[0, 1, 2], [3, 4, 5], [6, 7, 8]]");
}

TEST(Inserting, PutsValuesBeforePositions) {
  EXPECT_TEXT(insert(arange(3), 1, 9), "i32[4] [0, 9, 1, 2]");
  EXPECT_TEXT(insert(arange(3), -1, array({8, 9})), "i32[5] [0, 1, 8, 9, 2]");
  EXPECT_TEXT(insert(grid(), 1, array({7, 8}), 1), "i32[2,4] [[0, 7, 1, 2], [3, 8, 4, 5]]");
  EXPECT_TEXT(insert(grid(), 2, 9), "i32[3,3] [[0, 1, 2], [3, 4, 5], [9, 9, 9]]");
  EXPECT_TEXT(insert(arange(4), {3, 1}, array({8, 9})), "i32[6] [0, 9, 1, 2, 8, 3]");
  EXPECT_THROWS(insert(arange(3), 4, 9), Error,
                "insert: index 4 is out of range for dimension 0 of [3]; valid indices: -3 to 3");
  EXPECT_TEXT(delete_(arange(4), 1), "i32[3] [0, 2, 3]");
  EXPECT_TEXT(delete_(grid(), {0, -1}, 1), "i32[2,1] [[1], [4]]");
  EXPECT_THROWS(delete_(arange(3), 3), Error,
                "delete_: index 3 is out of range for dimension 0 of [3]; valid indices: -3 to 2");
}

TEST(Splitting, MayBeUneven) {
  const auto parts = array_split(arange(8), 3);
  EXPECT_TEXT(parts[0], "i32[3] [0, 1, 2]");
  EXPECT_TEXT(parts[2], "i32[2] [6, 7]");
  EXPECT_TEXT(array_split(arange(4), {1})[1], "i32[3] [1, 2, 3]");
  EXPECT_TEXT(hsplit(grid(), 3)[2], "i32[2,1] [[2], [5]]");
  EXPECT_TEXT(hsplit(arange(4), 2)[1], "i32[2] [2, 3]");
  EXPECT_TEXT(vsplit(grid(), 2)[1], "i32[1,3] [[3, 4, 5]]");
  EXPECT_EQ(dsplit(zeros({1, 2, 4}), {1})[1].shape(), (Shape{1, 2, 3}));
  EXPECT_THROWS(vsplit(arange(4), 2), Error, "vsplit: [4] has 1 dimensions; it needs at least 2");
  EXPECT_THROWS(array_split(arange(4), 0), Error, "array_split: 0 parts requested");
}

TEST(Repeating, TakesCounts) {
  EXPECT_ELEMENTS(repeat(grid(), 2), {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, 0);
  EXPECT_TEXT(repeat(grid(), std::vector<int64_t>{2, 0, 1}, 1), "i32[2,3] [[0, 0, 2], [3, 3, 5]]");
  const Array x = array({10, 20, 30}), counts = array({1, 0, 3});
  EXPECT_TEXT(repeat(x, counts, 0, 4), "i32[4] [10, 30, 30, 30]");
  EXPECT_TEXT(repeat(x, counts, 0, 6), "i32[6] [10, 30, 30, 30, 30, 30]");
  EXPECT_TEXT(repeat(x, counts, 0, 2), "i32[2] [10, 30]");
  EXPECT_TEXT(jit([](Array a, Array n) { return repeat(a, n, 0, 4); })(x, counts), "i32[4] [10, 30, 30, 30]");
  EXPECT_THROWS(repeat(x, array({1, 2}), 0, 3), Error, "repeat: the counts are i32[2] for dimension 0 of [3]");
}

TEST(Turning, FollowsNumpy) {
  EXPECT_TEXT(fliplr(grid()), "i32[2,3] [[2, 1, 0], [5, 4, 3]]");
  EXPECT_TEXT(flipud(grid()), "i32[2,3] [[3, 4, 5], [0, 1, 2]]");
  EXPECT_TEXT(rot90(grid()), "i32[3,2] [[2, 5], [1, 4], [0, 3]]");
  EXPECT_TEXT(rot90(grid(), 2), "i32[2,3] [[5, 4, 3], [2, 1, 0]]");
  EXPECT_TEXT(rot90(grid(), -1), "i32[3,2] [[3, 0], [4, 1], [5, 2]]");
  EXPECT_TEXT(rot90(grid(), 1, {1, 0}), "i32[3,2] [[3, 0], [4, 1], [5, 2]]");
  EXPECT_TEXT(roll(grid(), {1, 1}, {0, 1}), "i32[2,3] [[5, 3, 4], [2, 0, 1]]");
  EXPECT_THROWS(rot90(grid(), 1, {0, 0}), Error, "rot90: axis 0 is given twice");
}

TEST(Padding, HasEveryMode) {
  const Array x = arange(4) + 1;
  const auto padded = [&](const char* mode, const PadOptions& options = {}) { return pad(x, {{2, 3}}, mode, options); };
  EXPECT_ELEMENTS(padded("edge"), {1, 1, 1, 2, 3, 4, 4, 4, 4}, 0);
  EXPECT_ELEMENTS(padded("reflect"), {3, 2, 1, 2, 3, 4, 3, 2, 1}, 0);
  EXPECT_ELEMENTS(padded("symmetric"), {2, 1, 1, 2, 3, 4, 4, 3, 2}, 0);
  EXPECT_ELEMENTS(padded("reflect", {.odd = true}), {-1, 0, 1, 2, 3, 4, 5, 6, 7}, 0);
  EXPECT_ELEMENTS(padded("symmetric", {.odd = true}), {0, 1, 1, 2, 3, 4, 4, 5, 6}, 0);
  EXPECT_ELEMENTS(padded("wrap"), {3, 4, 1, 2, 3, 4, 1, 2, 3}, 0);
  EXPECT_ELEMENTS(padded("maximum"), {4, 4, 1, 2, 3, 4, 4, 4, 4}, 0);
  EXPECT_ELEMENTS(padded("minimum", {.stat_length = 2}), {1, 1, 1, 2, 3, 4, 3, 3, 3}, 0);
  EXPECT_ELEMENTS(padded("mean"), {2, 2, 1, 2, 3, 4, 2, 2, 2}, 0);
  EXPECT_TEXT(pad(astype(x, f32), {{1, 0}}, "median"), "f32[5] [2.5, 1, 2, 3, 4]");
  EXPECT_ELEMENTS(padded("constant", {.constant_values = {{7, 8}}}), {7, 7, 1, 2, 3, 4, 8, 8, 8}, 0);
  EXPECT_ELEMENTS(pad(array({2.0f, 6.0f}), {{2, 2}}, "linear_ramp", {.end_values = {{0, 10}}}), {0, 1, 2, 6, 8, 10},
                  1e-6);
  EXPECT_ELEMENTS(padded("empty"), {0, 0, 1, 2, 3, 4, 0, 0, 0}, 0);
  EXPECT_TEXT(pad(array({5}), {{2, 2}}, "reflect"), "i32[5] [5, 5, 5, 5, 5]");
  EXPECT_ELEMENTS(pad(array({1, 2}), {{4, 4}}, "reflect"), {1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, 0);
  EXPECT_TEXT(pad(array({{1, 2}}), {{0, 1}, {1, 0}}, "edge"), "i32[2,3] [[1, 1, 2], [1, 1, 2]]");
  EXPECT_ELEMENTS(grad([](const Array& v) { return sum(pad(v, {{2, 1}}, "edge")); })(array({1.0f, 2.0f})), {3, 2}, 0);
  EXPECT_TEXT(pad(x, {{1, 0}}, 0), "i32[5] [0, 1, 2, 3, 4]");
  EXPECT_THROWS(padded("mirror"), Error, "pad: no mode is called \"mirror\"; use constant, edge");
  EXPECT_THROWS(pad(x, {{-1, 0}}, "edge"), Error, "pad: widths -1 and 0 of dimension 0; they must not be negative");
  EXPECT_THROWS(pad(zeros({0}), {{1, 0}}, "wrap"), Error, "pad: dimension 0 of [0] is empty");
  EXPECT_THROWS(pad(zeros({2, 2, 2}), {{1, 0}, {0, 0}}, "edge"), Error, "pad: 2 widths for [2, 2, 2]");
}

TEST(Meshgrid, VariesLikeAPlotOrAMatrix) {
  const auto plot = meshgrid({arange(3), arange(2)});
  EXPECT_TEXT(plot[0], "i32[2,3] [[0, 1, 2], [0, 1, 2]]");
  EXPECT_TEXT(plot[1], "i32[2,3] [[0, 0, 0], [1, 1, 1]]");
  EXPECT_EQ(meshgrid({arange(3), arange(2), arange(4)}, {.ij = true})[2].shape(), (Shape{3, 2, 4}));
  EXPECT_EQ(meshgrid({arange(3), arange(2)}, {.sparse = true})[0].shape(), (Shape{1, 3}));
  EXPECT_THROWS(meshgrid({grid()}), Error, "meshgrid: array 0 is i32[2,3]; pass vectors or scalars");
}

TEST(AlongAxes, FunctionsAreApplied) {
  EXPECT_TEXT(apply_along_axis([](const Array& v) { return sum(v); }, 0, grid()), "i32[3] [3, 5, 7]");
  EXPECT_TEXT(apply_along_axis([](const Array& v) { return v * 2; }, 1, grid()), "i32[2,3] [[0, 2, 4], [6, 8, 10]]");
  EXPECT_EQ(apply_along_axis([](const Array& v) { return diag(v); }, 0, grid()).shape(), (Shape{2, 2, 3}));
  const auto total = [](const Array& v, int64_t axis) { return sum(v, axis); };
  EXPECT_TEXT(apply_over_axes(total, grid(), {0, 1}), "i32[1,1] [[15]]");
}

TEST(Matrices, HaveDiagonals) {
  EXPECT_TEXT(diag(array({1, 2}), 1), "i32[3,3] [[0, 1, 0], [0, 0, 2], [0, 0, 0]]");
  EXPECT_TEXT(diag(array({1, 2}), -1), "i32[3,3] [[0, 0, 0], [1, 0, 0], [0, 2, 0]]");
  EXPECT_TEXT(diag(grid(), 1), "i32[2] [1, 5]");
  EXPECT_TEXT(diag(grid(), -1), "i32[1] [3]");
  EXPECT_TEXT(diag(grid(), 5), "i32[0] []");
  EXPECT_TEXT(diagflat(array({{1, 2}})), "i32[2,2] [[1, 0], [0, 2]]");
  EXPECT_EQ(diagonal(zeros({2, 3, 4}), 1, 0, 2).shape(), (Shape{3, 2}));
  EXPECT_TEXT(trace(grid()), "i32[] 4");
  EXPECT_ELEMENTS(grad([](const Array& x) { return trace(x); })(ones({2, 2})), {1, 0, 0, 1}, 0);
  EXPECT_TEXT(fill_diagonal(grid(), 9), "i32[2,3] [[9, 1, 2], [3, 9, 5]]");
  EXPECT_TEXT(tri(2, 3, 1), "f32[2,3] [[1, 1, 0], [1, 1, 1]]");
  EXPECT_TEXT(identity(2, i32), "i32[2,2] [[1, 0], [0, 1]]");
  EXPECT_TEXT(vander(array({2, 3}), 3), "i32[2,3] [[4, 2, 1], [9, 3, 1]]");
  EXPECT_TEXT(vander(array({2.0f, 0.0f}), 3, true), "f32[2,3] [[1, 2, 4], [1, 0, 0]]");
  EXPECT_TEXT(tril_indices(2).second, "i32[3] [0, 0, 1]");
  EXPECT_TEXT(triu_indices(2, 1, 3).first, "i32[3] [0, 0, 1]");
  EXPECT_EQ(diag_indices(3).size(), 2u);
  EXPECT_THROWS(diag(zeros({1, 1, 1})), Error, "diag: [1, 1, 1] has 3 dimensions; pass a vector or a matrix");
}

TEST(Products, OfVectorsAndMatrices) {
  EXPECT_TEXT(kron(array({1, 2}), array({{1, 1}, {0, 1}})), "i32[2,4] [[1, 1, 2, 2], [0, 1, 0, 2]]");
  EXPECT_TEXT(inner(grid(), array({1, 0, 2})), "i32[2] [4, 13]");
  EXPECT_TEXT(vdot(grid(), grid()), "i32[] 55");
  EXPECT_TEXT(cross(array({1, 0, 0}), array({0, 1, 0})), "i32[3] [0, 0, 1]");
  EXPECT_TEXT(cross(array({1, 2}), array({3, 4})), "i32[] -2");
  EXPECT_TEXT(cross(array({1, 2}), array({3, 4, 5})), "i32[3] [10, -5, -2]");
  EXPECT_EQ(cross(zeros({4, 3}), zeros({3})).shape(), (Shape{4, 3}));
  EXPECT_THROWS(cross(zeros({4}), zeros({4})), Error, "cross: vectors of 4 and 4 elements along axis -1");
  EXPECT_THROWS(vdot(zeros({4}), zeros({3})), Error, "vdot: [4] and [3] have 4 and 3 elements");
}

TEST(Sequences, AreSpacedAsAsked) {
  EXPECT_TEXT(indices({2, 2}), "i32[2,2,2] [[[0, 0], [1, 1]], [[0, 1], [0, 1]]]");
  EXPECT_TEXT(fromfunction([](const auto& i) { return i[0] * 10 + i[1]; }, {2, 2}), "f32[2,2] [[0, 1], [10, 11]]");
  EXPECT_TEXT(linspace(0, 1, 4, {.endpoint = false}), "f32[4] [0, 0.25, 0.5, 0.75]");
  EXPECT_TEXT(linspace(array({0.0f, 10.0f}), array({2.0f, 20.0f}), 3), "f32[3,2] [[0, 10], [1, 15], [2, 20]]");
  EXPECT_ELEMENTS(logspace(0, 3, 4), {1, 10, 100, 1000}, 1e-3);
  EXPECT_ELEMENTS(geomspace(-1, -8, 4), {-1, -2, -4, -8}, 1e-6);
  EXPECT_THROWS(geomspace(0, 1), Error, "geomspace: 0 to 1; both must be nonzero");
}

}  // namespace
}  // namespace lockstep
