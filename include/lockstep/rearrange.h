// Functions that move elements without computing on them. Negative axes count from the back. Safe from any thread.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/axes.h"

namespace lockstep {

// The same elements, row-major, under another shape; one extent may be -1 and is then worked out.
Array reshape(const Array& x, const Shape& shape);
// One dimension.
Array ravel(const Array& x);
// Dimensions `start` to the last become one: flatten(x, 1) keeps the batch.
Array flatten(const Array& x, int64_t start = 0);

// Dimensions in reverse order, or: dimension i of the result is dimension permutation[i] of x.
Array transpose(const Array& x);
Array transpose(const Array& x, const std::vector<int64_t>& permutation);
Array swapaxes(const Array& x, int64_t a, int64_t b);
Array moveaxis(const Array& x, int64_t from, int64_t to);

// A new dimension of 1 at `axis` of the result.
Array expand_dims(const Array& x, int64_t axis);
// Without dimensions of 1: all, or those named.
Array squeeze(const Array& x, const Axes& axes = {});
// Repeated to this shape by NumPy's rules.
Array broadcast_to(const Array& x, const Shape& shape);

// Along an axis that is there, or a new one. Element types meet as in arithmetic.
Array concatenate(const std::vector<Array>& arrays, int64_t axis = 0);
Array stack(const std::vector<Array>& arrays, int64_t axis = 0);
// Into equal pieces, or before each of these positions.
std::vector<Array> split(const Array& x, int64_t pieces, int64_t axis = 0);
std::vector<Array> split_at(const Array& x, const std::vector<int64_t>& positions, int64_t axis = 0);
// The slices along an axis, which is removed.
std::vector<Array> unstack(const Array& x, int64_t axis = 0);

// The whole array repeated times[d] times along dimension d; `times` may be longer than the rank.
Array tile(const Array& x, const std::vector<int64_t>& times);
// Each element repeated, side by side.
Array repeat(const Array& x, int64_t times, int64_t axis);

// widths[d] = {before, after}: so many copies of `value` around dimension d; negative widths cut off.
Array pad(const Array& x, const std::vector<std::pair<int64_t, int64_t>>& widths, const Array& value = 0);
// In reverse order along the axes.
Array flip(const Array& x, const Axes& axes = {});
// Every element `shift` places further along an axis, the last ones coming in at the front; without an axis in
// row-major order.
Array roll(const Array& x, int64_t shift, std::optional<int64_t> axis = {});
// The elements of the last two dimensions on and below, and on and above, the k-th diagonal (above the main one where k
// is positive); zeros elsewhere.
Array tril(const Array& x, int64_t k = 0);
Array triu(const Array& x, int64_t k = 0);

// x[starts[d] : limits[d] : strides[d]]. Negative starts and limits count from the end; limits beyond the end mean the
// end. Dimensions left off at the back are taken whole.
Array slice(const Array& x, const std::vector<int64_t>& starts, const std::vector<int64_t>& limits,
            const std::vector<int64_t>& strides = {});

// The slice at `index` along an axis, which is removed. Negative indices count from the end. A number must lie inside;
// an array (a scalar, perhaps traced) is moved to the nearest end.
Array at(const Array& x, int64_t index, int64_t axis = 0);
Array at(const Array& x, const Array& index, int64_t axis = 0);

// The block of `sizes` that begins at `starts`, one scalar per dimension, perhaps traced; moved inwards where it would
// not fit.
Array dynamic_slice(const Array& x, const std::vector<Array>& starts, const std::vector<int64_t>& sizes);
// x with the block at `starts` replaced by `update`.
Array dynamic_update_slice(const Array& x, const Array& update, const std::vector<Array>& starts);

}  // namespace lockstep
