// Convolutions on the GPU as implicit matrix products: the matrix of columns (im2col) exists only in shared memory. The
// kernel text supports any stride, padding, dilation and groups. Pure functions, safe from any thread.
#pragma once

#include <string>

#include "lane/cpu/conv.h"
#include "ops/cuda/kernels.h"

namespace lockstep {

// How products are computed: by scalar fused multiply-add, or by the tensor cores, on 16-bit floats or on f32 rounded
// to 11 significant bits. Sums are f32; for f64 they are f64.
enum class ConvMath : uint8_t { fma, tf32, half };

// The product C = A x B of one group, of matrices `rows` x `depth` and `depth` x `cols`:
//
//                 rows            cols      depth
//   forward       pixels of y     co / g    kh kw ci
//   input_grad    pixels of x     ci        kh kw (co / g)
//   filter_grad   kh kw ci        co / g    pixels of y
//
// A thread block computes a tile of C, or (split-K) its partial sum over one of `splits` ranges of the depth, so that
// there are enough thread blocks. Partial sums are then added in a fixed order.
struct ConvLayout {
  int64_t rows = 0, cols = 0, depth = 0;
  int tile_rows = 64, tile_cols = 64, tile_depth = 16;
  int threads = 128;
  int64_t splits = 1, tiles_each = 1;
  int64_t blocks = 0;   // of the kernel
  int64_t results = 0;  // elements of C, of all groups
};

// The extents of the output images.
ConvSpec::Pair conv_out(const ConvSpec&);
// The name of a pass in kernels.
const char* enumerator(ConvPass);

// REQUIRES: no operand and no result is empty.
ConvLayout conv_layout(ConvPass, const ConvSpec&, ConvMath);

// The text of a kernel f(A's array, B's array, C's array). C's elements are in the memory format; if there are splits,
// C is instead the partial sums [splits, results] in the type of the sum.
std::string conv_text(ConvPass, const ConvSpec&, ConvMath);

// The text of a kernel f(parts, C's array) that adds up the partial sums [splits, results]. It runs with
// conv_sum_blocks() thread blocks of kConvSumThreads threads.
constexpr int kConvSumThreads = 256;
std::string conv_sum_text(const ConvLayout&, DType);
int64_t conv_sum_blocks(const ConvLayout&);

}  // namespace lockstep
