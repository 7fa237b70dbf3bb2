// Matrix products of bf16 and f16 with special instructions: bfmmla and fmlal on Arm, AMX, AVX512-BF16 and AVX-512 on
// x86, chosen at run time; and of f32 with AVX-512. The inner part of Gemm and Conv. Kernels are immutable tables, safe
// from any thread; a product uses scratch of the calling thread.
//
// An operand is packed into panels of a few vectors (rows of A, columns of B; called lanes here):
//
//   [panel][depth / group][lane][group]     padded with zeros
//
// Every element of the result is one chain of f32 sums whose order depends on k alone, whatever the tiles.
#pragma once

#include <cstdint>
#include <span>

#include "lane/cpu/gemm_operand.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// The destination of a product of packed operands.
struct HalfResult {
  float* sums = nullptr;  // read if `accumulate`; written unless `rounded` is set
  int64_t ld = 0;
  bool accumulate = false;
  void* rounded = nullptr;  // destination of the sums rounded to the dtype of the operands
  int64_t rounded_ld = 0;
};

// The kernel of one instruction set and dtype. REQUIRES of its functions: all extents are above 0.
struct HalfKernel {
  const char* name;
  DType dtype;
  int64_t rows, cols;    // lanes of a panel of A and of B
  int64_t group;         // adjacent depths of a lane; packed depths are a multiple of it
  int64_t packed_bytes;  // of a packed element
  int64_t speed;         // approximate multiplications per cycle

  // Packs `lanes` lanes of `depth` elements. Element (lane, p) is at from[lane * ld + p], or at from[p * ld + lane]
  // if the lanes are adjacent.
  using Pack = void (*)(const void* from, int64_t ld, bool lanes_adjacent, int64_t lanes, int64_t depth, void* to);
  Pack pack_a, pack_b;

  // Computes [rows, cols] of the product of packed operands.
  void (*multiply)(const void* a, const void* b, int64_t rows, int64_t cols, int64_t depth, const HalfResult& result);
};

// The kernels that this machine supports, best first.
std::span<const HalfKernel* const> half_kernels();

// The best kernel for operands of this dtype; null if there is none: then convert to f32.
const HalfKernel* half_kernel(DType dtype);

// The kernel that Gemm uses for results of m x n: half_kernel(), or that for f32 on x86 with AVX-512, unless it would pad
// most of a panel; null: OpenBLAS, after a conversion of 16-bit floats to f32. OpenBLAS's kernels for x86 sum an element
// in an order that depends on its place in the tile, so their tiles cannot follow the number of threads.
const HalfKernel* gemm_kernel(DType dtype, int64_t m, int64_t n);

namespace detail {

// The depth of the panels: equal shares of k.
int64_t half_depth(const HalfKernel& kernel, int64_t k);

// pack_right() packs all of B[k, cols] for several products that share it; packed_right_bytes() is its size.
int64_t packed_right_bytes(const HalfKernel& kernel, int64_t cols, int64_t k);
template <class T>
void pack_right(const HalfKernel& kernel, const GemmOperand<T>& b, int64_t cols, int64_t k, void* to);
// Packs the columns [begin, end) of it to their place. REQUIRES: begin is a multiple of kernel.cols, and so is end, or it
// is cols.
template <class T>
void pack_right_columns(const HalfKernel& kernel, const GemmOperand<T>& b, int64_t begin, int64_t end, int64_t cols,
                        int64_t k, void* to);

// Computes a[rows, k] b[k, cols] on the calling thread; k = 0 gives zeros. Uses scratch slot kASlot; kBSlot unless B is
// packed; and kSumSlot if the result is rounded and k exceeds half_depth(), in which case it must not accumulate.
template <class T>
void multiply_half(const HalfKernel& kernel, Pool& pool, int thread, const GemmOperand<T>& a, const Right<T>& b,
                   int64_t rows, int64_t cols, int64_t k, HalfResult result);

}  // namespace detail
}  // namespace lockstep
