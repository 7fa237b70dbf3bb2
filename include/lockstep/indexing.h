// Functions that read and write at places that are data, and those that find such places. Indices are integers;
// negative ones count from the end. Safe from any thread.
#pragma once

#include <utility>

#include "lockstep/array.h"

namespace lockstep {

// Slices of x along `axis` at `indices`, whose dimensions take the place of that axis. Indices beyond an end mean that
// end.
Array take(const Array& x, const Array& indices, int64_t axis = 0);
// Element [i, j, k] of the result is x[i, indices[i, j, k], k] (for axis 1). The other dimensions broadcast.
Array take_along_axis(const Array& x, const Array& indices, int64_t axis);
// x with `updates`, broadcast to the shape that take() would give, added at `indices` along `axis`. Updates at equal
// indices add up; those beyond the ends are dropped.
Array scatter_add(const Array& x, const Array& indices, const Array& updates, int64_t axis = 0);

// 1 at the label along a new last dimension, 0 elsewhere; all 0 for a label outside [0, classes).
Array one_hot(const Array& labels, int64_t classes, DType dtype = f32);

// Stable; NaN comes last.
Array sort(const Array& x, int64_t axis = -1, bool descending = false);
// The i32 indices that sort x.
Array argsort(const Array& x, int64_t axis = -1, bool descending = false);
// The k greatest along the last axis, the greatest first, and their i32 indices. NaN comes last.
std::pair<Array, Array> top_k(const Array& x, int64_t k);

}  // namespace lockstep
