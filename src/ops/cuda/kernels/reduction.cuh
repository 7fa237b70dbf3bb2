// Sums over the threads of a thread block, and of the columns of an operand.
#pragma once
#include "elements.cuh"

namespace lockstep {

// A result whose elements are added to the thread's sum instead of being written.
struct SumOutput {
  float* sum;
  struct Element {
    float* sum;
    void operator=(float x) const { *sum += x; }
  };
  Element operator[](uint32_t) const { return {sum}; }
};
// Writes the sum of x over the threads of the thread block to to[block]. The array has kCount sums, of which thread
// blocks write the first `blocks`; block 0 clears the rest.
template <int kThreads, int kCount>
inline void write_block_sum(float x, float* to, uint32_t block, uint32_t blocks, char* shared) {
  const auto warp_sum = [](float y) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) y += __shfl_xor_sync(0xffffffffu, y, d);
    return y;
  };
  float* const sums = reinterpret_cast<float*>(shared);
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x < 32) {
    x = warp_sum(threadIdx.x < kThreads / 32 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) to[block] = x;
  }
  if (block == 0)
    for (uint32_t k = blocks + threadIdx.x; k < kCount; k += kThreads) to[k] = 0;
}

// An operand B whose columns are added up during the product, by the thread blocks of the first rows. `parts`: floats
// in shared memory for the threads' sums (Gemm::column_sum).
template <class T>
struct ColumnSummed {
  const T* of;
  float* parts;
};
template <class T>
inline const T* matrix_of(const T* x) {
  return x;
}
template <class T>
inline const T* matrix_of(const ColumnSummed<T>& x) {
  return x.of;
}

}  // namespace lockstep
