// Pooling: maxima and sums over windows of NHWC images, and their gradients, on one CPU lane. Stateless functions, safe
// from any thread; results do not depend on the number of threads.
//
// Among equal maxima of a window the first in row-major order counts; NaN counts as larger than any number. Padding is
// never the maximum: a window of only padding has the lowest value of its dtype (minus infinity for floats) as maximum,
// picks zero, and its gradient is dropped. 16-bit floats are summed in f32 and rounded once; integers wrap around.
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

  // Extents of the output images; 0 if the window does not fit.
  Pair out() const;
};

// x is [batch, in, channels], y and dy are [batch, out, channels]. Each function throws Error for bool and for strides
// below 1.

// y: the maximum of each window.
void max_pool(Pool& pool, const WindowSpec& spec, const void* x, void* y);

// dx: each dy added at the position of its window's maximum in x, zero elsewhere. The transpose of max_pool_pick. The
// epilogue, if given, gets tiles of [pixels of all images, channels]. If dx is null, only the epilogue gets the result.
void max_pool_gradient(Pool& pool, const WindowSpec& spec, const void* x, const void* dy, void* dx,
                       Epilogue epilogue = {});

// y: the element of v, an array of x's shape, at the position of each window's maximum in x.
void max_pool_pick(Pool& pool, const WindowSpec& spec, const void* x, const void* v, void* y);

// y: the sum of each window, padding counting as zero.
void sum_pool(Pool& pool, const WindowSpec& spec, const void* x, void* y);

// dx: each dy added to every element of its window.
void sum_pool_gradient(Pool& pool, const WindowSpec& spec, const void* dy, void* dx);

}  // namespace lockstep
