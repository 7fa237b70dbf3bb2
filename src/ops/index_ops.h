// Functions on Values that move elements to or from positions given as data. Strict: no promotion. A Builder
// belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/builder.h"

namespace lockstep {

// The type that counts positions along a dimension, from -1 to the extent: i32 if these fit, else i64. Whoever makes a
// start, an index or a count of elements for the caller takes the type from here.
constexpr DType index_dtype(int64_t extent) { return extent <= INT32_MAX ? DType::i32 : DType::i64; }

// A position along a dimension of this extent, a scalar.
Value index_scalar(Builder&, int64_t at, int64_t extent);

// 0, 1, 2, ... along dimension `dim` of an array of this shape.
Value index_iota(Builder&, const Shape& shape, int64_t dim);

// Takes slices of x [B..., pre..., N, post...] along its dimension `axis` (extent N) at indices [B..., I...] (i32,
// i64 or u32). The result is [B..., pre..., I..., post...]. The first `batch_dims` dimensions B of both correspond.
// Indices outside [0, N) are clamped.
Value gather(Value x, Value indices, int64_t axis, int64_t batch_dims = 0);

// Adds updates [B..., pre..., I..., post...] to `x` at the positions that gather would read. Updates at indices
// outside [0, N) are dropped. Updates at equal indices are added in row-major order of the indices.
Value scatter_add(Value x, Value indices, Value updates, int64_t axis, int64_t batch_dims = 0);

// Combines updates with the elements of `x` at the positions that gather would read, as `how` says: "set",
// "multiply", "min" or "max". Updates at indices outside [0, N) are dropped, and equal indices are combined in
// row-major order: of several that are set, the last one stays. `unique` promises that no two indices inside are
// equal, so that gradients are cheaper.
Value scatter(Value x, Value indices, Value updates, std::string how, int64_t axis, int64_t batch_dims = 0,
              bool unique = false);

// Sorts the first operand along `axis` and permutes the others, of the same shape, in the same way.
// Stable; NaN is greatest: last, or first if descending.
Values sort(const Values& operands, int64_t axis, bool descending = false);

// The k greatest elements along the last dimension in descending order, and their i32 indices. Among equal elements
// the lower index comes first. NaN is greatest.
Values top_k(Value x, int64_t k);

}  // namespace lockstep
