// More functions of jax.numpy that join, split, repeat and rearrange arrays. Negative axes count from the back. Safe to
// call from any thread.
//
//   Array grid = hstack({column, table});
//   auto [x, y] = std::pair{meshgrid({xs, ys})[0], meshgrid({xs, ys})[1]};
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/axes.h"
#include "lockstep/operand.h"

namespace lockstep {

// ---- Ranks and shapes.

// At least one, two or three dimensions: [n] becomes [1, n] and [1, n, 1].
Array atleast_1d(const Operand& x);
Array atleast_2d(const Operand& x);
Array atleast_3d(const Operand& x);
// The common shape of a broadcast; arrays broadcast to it.
Shape broadcast_shapes(const std::vector<Shape>& shapes, SourceLine at = SourceLine::here());
std::vector<Array> broadcast_arrays(const Operands& arrays);
// Moves several dimensions; moves one before position `start`.
Array moveaxis(const Operand& x, const std::vector<int64_t>& from, const std::vector<int64_t>& to);
Array rollaxis(const Operand& x, int64_t axis, int64_t start = 0);
// The elements repeated or cut off to fill `shape`, in row-major order.
Array resize(const Operand& x, const Shape& shape);

// ---- Joining.

// Join along dimension 1, or 0 of vectors (hstack), along dimension 0 of matrices (vstack), along dimension 2 (dstack),
// or vectors as columns (column_stack).
Array hstack(const Operands& arrays);
Array vstack(const Operands& arrays);
Array dstack(const Operands& arrays);
Array column_stack(const Operands& arrays);
// Joins each row of blocks along the last dimension, and the rows along the one before.
Array block(const std::vector<std::vector<Array>>& rows, SourceLine at = SourceLine::here());
// Adds `values` at the end of an axis. Without an axis, both are flattened.
Array append(const Operand& x, const Operand& values);
Array append(const Operand& x, const Operand& values, int64_t axis);
// Inserts `values`, which broadcast, before position `index` of an axis; before several positions: one value each.
Array insert(const Operand& x, int64_t index, const Operand& values, int64_t axis = 0);
Array insert(const Operand& x, const std::vector<int64_t>& indices, const Operand& values, int64_t axis = 0);
// Removes the elements at these positions of an axis (numpy.delete). Throws Error for a position out of range.
Array delete_(const Operand& x, int64_t index, int64_t axis = 0);
Array delete_(const Operand& x, const std::vector<int64_t>& indices, int64_t axis = 0);

// ---- Splitting.

// Into `pieces` parts whose extents differ by at most 1, longer ones first; or at positions: array_split(x, {2, 5}).
std::vector<Array> array_split(const Operand& x, int64_t pieces, int64_t axis = 0);
std::vector<Array> array_split(const Operand& x, const std::vector<int64_t>& positions, int64_t axis = 0);
inline std::vector<Array> array_split(const Operand& x, std::initializer_list<int64_t> positions, int64_t axis = 0) {
  return array_split(x, std::vector<int64_t>(positions), axis);
}
// Into equal parts along dimension 1 (hsplit; 0 of vectors), 0 (vsplit) or 2 (dsplit), or at positions.
std::vector<Array> hsplit(const Operand& x, int64_t pieces);
std::vector<Array> hsplit(const Operand& x, const std::vector<int64_t>& positions);
inline std::vector<Array> hsplit(const Operand& x, std::initializer_list<int64_t> positions) {
  return hsplit(x, std::vector<int64_t>(positions));
}
std::vector<Array> vsplit(const Operand& x, int64_t pieces);
std::vector<Array> vsplit(const Operand& x, const std::vector<int64_t>& positions);
inline std::vector<Array> vsplit(const Operand& x, std::initializer_list<int64_t> positions) {
  return vsplit(x, std::vector<int64_t>(positions));
}
std::vector<Array> dsplit(const Operand& x, int64_t pieces);
std::vector<Array> dsplit(const Operand& x, const std::vector<int64_t>& positions);
inline std::vector<Array> dsplit(const Operand& x, std::initializer_list<int64_t> positions) {
  return dsplit(x, std::vector<int64_t>(positions));
}

// ---- Repeating, reversing, rotating.

// Repeats element i along an axis repeats[i] times; without an axis, of the flattened array. Counts in an array need
// the length of the result: elements beyond it are cut off, and the last one fills what is missing.
Array repeat(const Operand& x, int64_t times);
Array repeat(const Operand& x, const std::vector<int64_t>& repeats, int64_t axis);
Array repeat(const Operand& x, const Operand& repeats, int64_t axis, int64_t total_repeat_length);
Array fliplr(const Operand& x);
Array flipud(const Operand& x);
// Rotates by k quarter turns from the first towards the second of the axes.
Array rot90(const Operand& x, int64_t k = 1, std::pair<int64_t, int64_t> axes = {0, 1});
// Shifts elements along several axes; elements shifted past the end reappear at the front.
Array roll(const Operand& x, const std::vector<int64_t>& shifts, const std::vector<int64_t>& axes);

// ---- Padding.

struct PadOptions {
  // {before, after} of all dimensions, or one pair for each.
  std::vector<std::pair<double, double>> constant_values = {{0, 0}};  // "constant"
  std::vector<std::pair<double, double>> end_values = {{0, 0}};       // "linear_ramp": the outermost values
  int64_t stat_length = 0;  // "maximum", "mean", "median", "minimum": how many elements at the edge count; 0: all
  bool odd = false;         // "reflect", "symmetric": twice the edge less the reflected value
};
// The name of a mode: text, never the number 0, which pads with a value.
struct PadMode {
  template <class T>
  requires std::same_as<T, const char*> PadMode(T text) : name(text) {}  // NOLINT: reads as an argument
  PadMode(std::string_view text) : name(text) {}                         // NOLINT
  PadMode(const std::string& text) : name(text) {}                       // NOLINT

  std::string_view name;
};
// Adds widths[d] = {before, after} elements at the ends of dimension d, or one pair for all dimensions. The modes are
// "constant", "edge", "linear_ramp", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap" and "empty"
// (zeros). Throws Error for another mode, negative widths, and an empty dimension that has no value to repeat.
Array pad(const Operand& x, const std::vector<std::pair<int64_t, int64_t>>& widths, PadMode mode,
          const PadOptions& options = {});

// ---- Grids and functions along axes.

struct MeshgridOptions {
  bool ij = false;      // the first vector varies along the first dimension; else along the second, as in plots
  bool sparse = false;  // extents of 1 where an array does not vary
};
// For each vector an array of its values over the grid of all.
std::vector<Array> meshgrid(const Operands& vectors, const MeshgridOptions& options = {});
// f of each vector along an axis; the dimensions of its result replace the axis.
Array apply_along_axis(const std::function<Array(const Array&)>& f, int64_t axis, const Operand& x);
// f(x, axis) for each of the axes in turn; a result of lower rank gets the axis back with extent 1.
Array apply_over_axes(const std::function<Array(const Array&, int64_t)>& f, const Operand& x,
                      const std::vector<int64_t>& axes);

}  // namespace lockstep
