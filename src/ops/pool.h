// Pooling: images x [n, h, w, c], each channel on its own, with windows that slide over h and w. Positions of the
// padding take part in no maximum and add nothing to a sum. A Builder belongs to one thread.
#pragma once

#include <array>

#include "program/builder.h"

namespace lockstep {

struct PoolingOptions {
  std::array<int64_t, 2> window = {1, 1};
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 4> pad = {0, 0, 0, 0};  // before and after: {low h, high h, low w, high w}; less than the window
};

// The options that the attributes of an equation hold.
PoolingOptions pooling_options(const Attrs&);

// The largest element of each window; a NaN counts as largest.
Value max_pool(Value x, const PoolingOptions& options);

// y = max_pool(x). Sends each element of dy to the place in x of the first maximum, in row-major order, of its window.
Value max_pool_grad(Value x, Value y, Value dy, const PoolingOptions& options);

// y = max_pool(x), t shaped as x. The elements of t at the places that max_pool_grad sends to: its transpose in dy.
Value max_pool_pick(Value x, Value y, Value t, const PoolingOptions& options);

// The sum of each window.
Value sum_pool(Value x, const PoolingOptions& options);

// The transpose of sum_pool on arrays of shape `x`: adds each element of dy to every place of its window.
Value sum_pool_grad(Value dy, Shape x, const PoolingOptions& options);

}  // namespace lockstep
