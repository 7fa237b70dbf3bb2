// Pooling: maxima and sums over windows of NHWC images, and what their gradients need, on one CPU lane. Stateless
// functions, safe from any thread; results do not depend on the number of threads.
//
// A maximum belongs to the first of its window's largest elements in row-major order; NaN counts as larger than any
// number. Padding never wins: a window that sees nothing but padding has the lowest value of its dtype (minus infinity
// for floats) as maximum, picks zero, and gives its gradient to nobody. 16-bit floats are summed in f32 and rounded
// once; integers wrap around.
#pragma once

#include <array>
#include <cstdint>

#include "lane/cpu/tile.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// Pairs are height and width.
struct WindowSpec {
  using Pair = std::array<int64_t, 2>;

  DType dtype = DType::f32;  // of all arrays: any but bool
  int64_t batch = 1;
  Pair in{};
  int64_t channels = 1;
  Pair window{1, 1};
  Pair stride{1, 1};
  Pair pad_lo{0, 0}, pad_hi{0, 0};

  // Extents of the output images; 0 where the window does not fit.
  Pair out() const;
};

// x is [batch, in, channels], y and dy are [batch, out, channels]. Each function throws Error for bool and for strides
// below 1.

// y: the maximum of each window.
void max_pool(Pool& pool, const WindowSpec& spec, const void* x, void* y);

// dx: each dy added where its window's maximum is in x, zero elsewhere. The transpose of max_pool_pick. Where an
// epilogue is given it sees rows of pixels, counted through all images, by the channels; where dx is null the result
// goes to the epilogue only.
void max_pool_gradient(Pool& pool, const WindowSpec& spec, const void* x, const void* dy, void* dx,
                       Epilogue epilogue = {});

// y: the element of v, an array of x's shape, at the place of each window's maximum in x.
void max_pool_pick(Pool& pool, const WindowSpec& spec, const void* x, const void* v, void* y);

// y: the sum of each window, padding counting as zero.
void sum_pool(Pool& pool, const WindowSpec& spec, const void* x, void* y);

// dx: each dy added to every element of its window.
void sum_pool_gradient(Pool& pool, const WindowSpec& spec, const void* dy, void* dx);

}  // namespace lockstep
