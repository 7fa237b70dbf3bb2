// Pooling of images x [n, h, w, c], each channel separately, with windows that slide over h and w. Padding takes part
// in no maximum and adds nothing to a sum. A Builder belongs to one thread.
#pragma once

#include <array>

#include "program/builder.h"

namespace lockstep {

struct PoolingOptions {
  std::array<int64_t, 2> window = {1, 1};
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 4> pad = {0, 0, 0, 0};  // before and after: {low h, high h, low w, high w}; less than the window
};

// Reads the options from the attributes of an equation.
PoolingOptions pooling_options(const Attrs&);

// The largest element of each window; NaN counts as the largest.
Value max_pool(Value x, const PoolingOptions& options);

// y = max_pool(x). Adds each element of dy to the position in x of its window's first maximum in row-major order.
Value max_pool_grad(Value x, Value y, Value dy, const PoolingOptions& options);

// y = max_pool(x), t has the shape of x. The elements of t at the positions to which max_pool_grad adds: the transpose
// of max_pool_grad in dy.
Value max_pool_pick(Value x, Value y, Value t, const PoolingOptions& options);

// The sum of each window.
Value sum_pool(Value x, const PoolingOptions& options);

// The transpose of sum_pool on arrays of shape `x`: adds each element of dy to every position of its window.
Value sum_pool_grad(Value dy, Shape x, const PoolingOptions& options);

}  // namespace lockstep
