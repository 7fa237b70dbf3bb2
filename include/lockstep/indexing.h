// Gather, scatter and sort: functions whose indices are data. Indices are integers; negative ones count from
// the end. Safe to call from any thread.
//
//   Array rows = take(table, ids);                   // table[ids]
//   auto [best, index] = top_k(scores, 5);
#pragma once

#include <utility>

#include "lockstep/array.h"

namespace lockstep {

// Takes slices of x along `axis`. The dimensions of `indices` replace that axis in the result. Indices out of
// range are clamped to the nearest end.
Array take(const Array& x, const Array& indices, int64_t axis = 0);
// For axis 1, element [i, j, k] of the result is x[i, indices[i, j, k], k]. The other dimensions broadcast.
Array take_along_axis(const Array& x, const Array& indices, int64_t axis);
// Returns x with `updates` added at `indices` along `axis`. `updates` is broadcast to the shape of take(x,
// indices, axis). Updates at equal indices accumulate; those out of range are dropped.
Array scatter_add(const Array& x, const Array& indices, const Array& updates, int64_t axis = 0);

// Adds a last dimension with 1 at the label and 0 elsewhere; all 0 for a label outside [0, classes).
Array one_hot(const Array& labels, int64_t classes, DType dtype = f32);

// Sorts along an axis. Stable. NaN is greatest: last, or first if `descending`.
Array sort(const Array& x, int64_t axis = -1, bool descending = false);
// The i32 indices that sort x.
Array argsort(const Array& x, int64_t axis = -1, bool descending = false);
// The k largest elements along the last axis, in descending order, and their i32 indices. NaN is greatest.
std::pair<Array, Array> top_k(const Array& x, int64_t k);

}  // namespace lockstep
