// Convolutions on the GPU as matrix products over columns that exist in shared memory only: the text of such a kernel
// for any stride, padding, dilation and groups. Plain values, safe from any thread.
#pragma once

#include <string>

#include "lane/cpu/conv.h"
#include "ops/cuda/kernels.h"

namespace lockstep {

// How products are computed: one by one, or by the tensor cores, of 16-bit floats or of f32 with significands of 11
// bits. Sums are f32, those of f64 f64.
enum class ConvMath : uint8_t { fma, tf32, half };

// The product C = A x B of one group, of `rows` x `depth` and `depth` x `cols`:
//
//                 rows            cols      depth
//   forward       pixels of y     co / g    kh kw ci
//   input_grad    pixels of x     ci        kh kw (co / g)
//   filter_grad   kh kw ci        co / g    pixels of y
//
// A block computes a tile of C, or the part of it that comes from a stretch of the depth (`splits` of them), so that
// there are enough blocks; parts are then added up, in their order.
struct ConvLayout {
  int64_t rows = 0, cols = 0, depth = 0;
  int tile_rows = 64, tile_cols = 64, tile_depth = 16;
  int threads = 128;
  int64_t splits = 1, tiles_each = 1;
  int64_t blocks = 0;   // of the kernel
  int64_t results = 0;  // elements of C, of all groups
};

// REQUIRES: nothing of it is empty.
ConvLayout conv_layout(ConvPass, const ConvSpec&, ConvMath);

// A function f(A's array, B's array, C's array), where C's elements are as in memory, or, where there are splits, parts
// [splits, results] as they are summed.
std::string conv_text(ConvPass, const ConvSpec&, ConvMath);

// Of parts [splits, results] their sums: f(parts, C's array), conv_sum_blocks() blocks of kConvSumThreads threads.
constexpr int kConvSumThreads = 256;
std::string conv_sum_text(const ConvLayout&, DType);
int64_t conv_sum_blocks(const ConvLayout&);

}  // namespace lockstep
