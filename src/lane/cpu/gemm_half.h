// Matrix products of bf16 and f16 by the instructions made for them: bfmmla and fmlal on Arm, AVX512-BF16 and AVX-512
// on x86, chosen at run time. The inner part of Gemm and Conv where the machine has them. Kernels are immutable tables,
// safe from any thread; a product uses scratch of the calling thread.
//
// An operand is packed into panels of a few lanes (rows of A, columns of B), depth by depth: [panel][depth / group]
// [lane][group], lanes and depths that are not there being zeros. Every element of the result is one chain of sums in
// f32 whose order follows from k alone, wherever the product is cut.
#pragma once

#include <cstdint>
#include <span>

#include "lane/cpu/operand.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// What a product of packed operands is added to and where it goes.
struct HalfResult {
  float* sums = nullptr;  // read when `accumulate`; written unless `rounded` is given
  int64_t ld = 0;
  bool accumulate = false;
  void* rounded = nullptr;  // the sums in the dtype of the operands
  int64_t rounded_ld = 0;
};

// The kernel of one instruction set and dtype. REQUIRES of its functions: all extents are above 0.
struct HalfKernel {
  const char* name;
  DType dtype;
  int64_t rows, cols;    // lanes of a panel of A and of B
  int64_t group;         // adjacent depths of a lane; packed depths are a multiple of it
  int64_t packed_bytes;  // of a packed element
  int64_t speed;         // multiplications a cycle, roughly

  // Packs `lanes` lanes of `depth` elements. Element (lane, p) is at from[lane * ld + p], or at from[p * ld + lane]
  // when the lanes are adjacent.
  using Pack = void (*)(const void* from, int64_t ld, bool lanes_adjacent, int64_t lanes, int64_t depth, void* to);
  Pack pack_a, pack_b;

  // [rows, cols] of the product of packed operands.
  void (*multiply)(const void* a, const void* b, int64_t rows, int64_t cols, int64_t depth, const HalfResult& result);
};

// The kernels this machine can run, the best first.
std::span<const HalfKernel* const> half_kernels();

// The kernel for operands of this dtype; null when there is none: convert to f32 then.
const HalfKernel* half_kernel(DType dtype);

namespace detail {

// How deep the panels are: equal shares of k.
int64_t half_depth(const HalfKernel& kernel, int64_t k);

// Memory for pack_right, and packing all of B[k, cols] beforehand, for products that share it.
int64_t packed_right_bytes(const HalfKernel& kernel, int64_t cols, int64_t k);
template <class T>
void pack_right(const HalfKernel& kernel, const Operand<T>& b, int64_t cols, int64_t k, void* to);

// a[rows, k] b[k, cols] on the calling thread; k = 0 sums to zeros. Uses the scratch slots A and B (B unless it is
// packed already), and that of sums when the result is rounded and k exceeds half_depth; then the result must not
// accumulate.
template <class T>
void multiply_half(const HalfKernel& kernel, Pool& pool, int thread, const Operand<T>& a, const Right<T>& b,
                   int64_t rows, int64_t cols, int64_t k, HalfResult result);

}  // namespace detail
}  // namespace lockstep
