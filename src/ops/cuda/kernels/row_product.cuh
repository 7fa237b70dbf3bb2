// Products with small matrices, row by row.
#pragma once
#include "elements.cuh"

namespace lockstep {

// kRows rows of C = A x B per thread block, with an epilogue (epilogue.cuh). If there are fewer columns than threads,
// several threads share the sum of a column. B may be f32 (InB), which is rounded to T.
template <class T, class InB, int kThreads, int kRows, int kN, int kK, int kLeadA, int kLeadB, bool kTransposeB>
struct RowProduct {
  static constexpr int kParts = kN >= kThreads ? 1 : kThreads / kN < kK ? kThreads / kN : kK;
  static constexpr bool kByThreads = kParts <= 8;  // one thread adds up the parts of a column; otherwise a warp does

  static float sum(const T* a, const InB* b, int n, int part) {
    float x = 0;
#pragma unroll 16
    for (int k = part; k < kK; k += kParts)
      x = __fmaf_rn(load(a[k]), element_of<T>(b[kTransposeB ? n * kLeadB + k : k * kLeadB + n]), x);
    return x;
  }

  template <class Read, class Reader, class Finish>
  static void run(uint32_t block, const T* a, const InB* b, char*, char* shared, const Reader& read,
                  const Finish& finish) {
    for (int row = block * kRows; row < int(block + 1) * kRows; ++row) {
      const T* const from = a + int64_t(row) * kLeadA;
      if constexpr (kParts == 1) {
#pragma unroll 4
        for (int n = threadIdx.x; n < kN; n += kThreads) {
          Read r;
          read(row * kN + n, r);
          finish(row * kN + n, sum(from, b, n, 0), r);
        }
      } else {
        float* const sums = reinterpret_cast<float*>(shared);
        const int part = threadIdx.x / kN, own = kByThreads ? threadIdx.x : threadIdx.x / 32;
        // Load the epilogue inputs of the thread's first column during the product.
        Read r = {};
        const bool finishes = own < kN && (kByThreads || threadIdx.x % 32 == 0);
        if (finishes) read(row * kN + own, r);
        __syncthreads();  // the sums of the previous row were read
        if (part < kParts) sums[threadIdx.x] = sum(from, b, threadIdx.x % kN, part);
        __syncthreads();
        if constexpr (kByThreads) {
          float x = 0;
          for (int p = 0; p < kParts; ++p) x += finishes ? sums[p * kN + own] : 0;
          if (finishes) finish(row * kN + own, x, r);
          continue;
        }
        for (int n = own; n < kN; n += kThreads / 32) {
          if (n != own && threadIdx.x % 32 == 0) read(row * kN + n, r);
          float x = 0;
          for (int p = threadIdx.x % 32; p < kParts; p += 32) x += sums[p * kN + n];
          for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
          if (threadIdx.x % 32 == 0) finish(row * kN + n, x, r);
        }
      }
    }
  }
};

}  // namespace lockstep
