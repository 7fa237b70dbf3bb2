// Functions on Values that move elements to places that are themselves data. Strict: no promotion. A Builder belongs to
// one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "program/builder.h"

namespace lockstep {

// Takes slices of x [B..., pre..., N, post...] along its dimension `axis` (extent N) at indices [B..., I...] (i32, i64
// or u32): the result is [B..., pre..., I..., post...]. The first `batch_dims` dimensions B of both run in step.
// Indices outside [0, N) are moved to the nearest end.
Value gather(Value x, Value indices, int64_t axis, int64_t batch_dims = 0);

// `x` with updates [B..., pre..., I..., post...] added at the places gather would read. Updates at indices outside [0,
// N) are dropped; those at equal indices add up, in row-major order of the indices.
Value scatter_add(Value x, Value indices, Value updates, int64_t axis, int64_t batch_dims = 0);

// The operands, all of one shape, each rearranged along `axis` so that the first is in ascending (or descending) order.
// Stable; NaN comes last.
Values sort(const Values& operands, int64_t axis, bool descending = false);

// The k greatest elements along the last dimension in descending order, and their i32 indices. Of equal elements the
// one with the lower index comes first.
Values top_k(Value x, int64_t k);

}  // namespace lockstep
