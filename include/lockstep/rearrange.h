// Functions that move elements without computing on them. Negative axes count from the back. Safe to call
// from any thread.
//
//   Array batch = reshape(images, {-1, 28, 28, 1});
//   Array first = at(batch, 0);                      // [28, 28, 1]
//   Array some = slice(batch, {0, 4, 4}, {16, 24, 24});
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/axes.h"
#include "lockstep/operand.h"

namespace lockstep {

// The same elements in row-major order with another shape. One extent may be -1: it is inferred.
Array reshape(const Operand& x, const Shape& shape);
// Flattens to one dimension.
Array ravel(const Operand& x);
// Merges dimensions from `start` to the last: flatten(x, 1) keeps the batch dimension.
Array flatten(const Operand& x, int64_t start = 0);

// Reverses the dimensions; or permutes them: dimension i of the result is dimension permutation[i] of x.
Array transpose(const Operand& x);
Array transpose(const Operand& x, const std::vector<int64_t>& permutation);
// Exchanges two dimensions; moves one dimension to another position.
Array swapaxes(const Operand& x, int64_t a, int64_t b);
Array moveaxis(const Operand& x, int64_t from, int64_t to);

// Inserts a dimension of extent 1 at position `axis` of the result.
Array expand_dims(const Operand& x, int64_t axis);
// Removes dimensions of extent 1: all, or the given ones.
Array squeeze(const Operand& x, const Axes& axes = {});
// Broadcasts to `shape` by NumPy's rules.
Array broadcast_to(const Operand& x, const Shape& shape);

// Joins arrays along an existing axis, or along a new one. Element types are promoted.
Array concatenate(const Operands& arrays, int64_t axis = 0);
Array stack(const Operands& arrays, int64_t axis = 0);
// Splits into `pieces` equal parts along an axis, or before each of the given positions.
std::vector<Array> split(const Operand& x, int64_t pieces, int64_t axis = 0);
std::vector<Array> split_at(const Operand& x, const std::vector<int64_t>& positions, int64_t axis = 0);
// The slices along an axis, which is removed: the inverse of stack.
std::vector<Array> unstack(const Operand& x, int64_t axis = 0);

// Repeats the array times[d] times along dimension d. `times` may be longer than the rank.
Array tile(const Operand& x, const std::vector<int64_t>& times);
// Repeats each element `times` times in a row along an axis.
Array repeat(const Operand& x, int64_t times, int64_t axis);

// Adds widths[d] = {before, after} copies of `value` at the ends of dimension d. Negative widths remove
// elements.
Array pad(const Operand& x, const std::vector<std::pair<int64_t, int64_t>>& widths, const Operand& value = 0);
// jax.lax.pad: also puts `between` elements between neighbours; negative `before` and `after` cut elements off.
struct PadConfig {
  int64_t before = 0, after = 0, between = 0;
};
Array pad_general(const Operand& x, const Operand& value, const std::vector<PadConfig>& config);
// Reverses the order of elements along the axes.
Array flip(const Operand& x, const Axes& axes = {});
// Shifts elements by `shift` positions along an axis; elements shifted past the end reappear at the front.
// Without an axis, in row-major order.
Array roll(const Operand& x, int64_t shift, std::optional<int64_t> axis = {});
// Keep the elements of the last two dimensions on and below (tril), or on and above (triu), the k-th
// diagonal; the rest become zero. k > 0 is above the main diagonal.
Array tril(const Operand& x, int64_t k = 0);
Array triu(const Operand& x, int64_t k = 0);

// x[starts[d] : limits[d] : strides[d]] in each dimension d. Negative starts and limits count from the end;
// limits are clamped. Trailing dimensions that are not given are kept completely.
Array slice(const Operand& x, const std::vector<int64_t>& starts, const std::vector<int64_t>& limits,
            const std::vector<int64_t>& strides = {});

// The slice at `index` along an axis, which is removed. Negative indices count from the end. A number out of
// range throws Error; an array (a scalar, perhaps traced) is clamped.
Array at(const Operand& x, int64_t index, int64_t axis = 0);
Array at(const Operand& x, const Operand& index, int64_t axis = 0);

// The block of shape `sizes` that begins at `starts`: one integer scalar per dimension, perhaps traced.
// Starts are clamped so that the block fits.
Array dynamic_slice(const Operand& x, const Operands& starts, const std::vector<int64_t>& sizes);
// Returns x with the block at `starts` replaced by `update`. Starts are clamped likewise.
Array dynamic_update_slice(const Operand& x, const Operand& update, const Operands& starts);

}  // namespace lockstep
