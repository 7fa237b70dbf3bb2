// Gather, scatter and sort: functions whose indices are data. Indices are integers; negative ones count from
// the end. x(...) and x.at(...) are in lockstep/index.h, searches in lockstep/search.h. Safe to call from any thread.
//
//   Array rows = take(table, ids);                   // table[ids]
//   auto [best, index] = top_k(scores, 5);
//   Array sums = segment_sum(values, ids, 10);
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/index.h"
#include "lockstep/operand.h"

namespace lockstep {

// Takes slices of x along `axis`. The dimensions of `indices` replace that axis in the result. Indices out of
// range are clamped to the nearest end.
Array take(const Operand& x, const Operand& indices, int64_t axis = 0);
// For axis 1, element [i, j, k] of the result is x[i, indices[i, j, k], k]. The other dimensions broadcast.
Array take_along_axis(const Operand& x, const Operand& indices, int64_t axis);
// Returns x with the elements that take_along_axis(x, indices, axis) would read replaced by `values`, which
// broadcasts to the shape of `indices`. Of equal indices the last one counts; those out of range are dropped.
Array put_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis,
                     UpdateOptions options = {});
// Returns x with `updates` added at `indices` along `axis`. `updates` is broadcast to the shape of take(x,
// indices, axis). Updates at equal indices accumulate; those out of range are dropped.
Array scatter_add(const Operand& x, const Operand& indices, const Operand& updates, int64_t axis = 0);

// Combines the slices of `data` along its first dimension that have the same id. Slice i of the result is that of
// id i, of num_segments ids; absent: the greatest id plus 1, which must not be traced. Ids out of range, also
// negative ones, are dropped. Ids without slices get 0, 1, or the lowest or highest value (-inf, inf).
// `indices_are_sorted` is a promise that allows a faster method and never changes results.
Array segment_sum(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments = {},
                  bool indices_are_sorted = false);
Array segment_prod(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments = {},
                   bool indices_are_sorted = false);
Array segment_max(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments = {},
                  bool indices_are_sorted = false);
Array segment_min(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments = {},
                  bool indices_are_sorted = false);

// What functions that return indices do with values out of range: throw Error (then arguments must not be traced),
// take them modulo the extent, or clamp them.
enum class RangeMode : uint8_t { raise, wrap, clip };

// Element i of the result is element i of choices[a[i]]; all arrays broadcast together.
Array choose(const Operand& a, const Operands& choices, RangeMode mode = RangeMode::raise);

// The positions in row-major order of elements of an array of shape `dims`, and the other way round. unravel_index()
// clamps; negative positions count from the end.
Array ravel_multi_index(const Operands& multi_index, const Shape& dims, RangeMode mode = RangeMode::raise);
std::vector<Array> unravel_index(const Operand& indices, const Shape& shape);

// The indices of the elements of an array [n, m] on and below, or on and above, its k-th diagonal. m is n if absent.
std::pair<Array, Array> tril_indices(int64_t n, int64_t k = 0, std::optional<int64_t> m = {});
std::pair<Array, Array> triu_indices(int64_t n, int64_t k = 0, std::optional<int64_t> m = {});
// The indices of the main diagonal of an array [n, n, ...] with ndim dimensions.
std::vector<Array> diag_indices(int64_t n, int64_t ndim = 2, SourceLine at = SourceLine::here());
// Arrays of one dimension as an open mesh: x(rows, columns) of ix_({rows, columns}) has all combinations. Masks
// become the places where they are true.
std::vector<Array> ix_(const Operands& arrays);

// Adds a last dimension with 1 at the label and 0 elsewhere; all 0 for a label outside [0, classes).
Array one_hot(const Operand& labels, int64_t classes, DType dtype = f32);

// Sorts along an axis. Stable. NaN is greatest: last, or first if `descending`.
Array sort(const Operand& x, int64_t axis = -1, bool descending = false);
// The i32 indices that sort x.
Array argsort(const Operand& x, int64_t axis = -1, bool descending = false);
// The k largest elements along the last axis, in descending order, and their i32 indices. NaN is greatest.
std::pair<Array, Array> top_k(const Operand& x, int64_t k);

}  // namespace lockstep
