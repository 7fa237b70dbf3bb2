// Products of rows of which every thread block has only some columns (CudaSpread).
#pragma once
#include "partial_sums.cuh"
#include "shared_view.cuh"

namespace lockstep {

// Rows of C = A x B, one warp per row. kAcross thread blocks have kCols columns of A and kCols rows of B each. give()
// publishes the partial sums of this thread block, number `place`; take() waits for those of all thread blocks, adds
// them up in a fixed order, and runs the epilogue. `now` is the number of the execution (publish_numbered).
template <class T, class InB, int kCols, int kAcross, int kN>
struct SharedSums {
  static constexpr int kParts = 32 / kN, kPerThread = (kAcross + kParts - 1) / kParts;
  uint64_t* messages;  // [rows, kAcross, kN] in global memory
  uint32_t now, place;

  static int lane() { return threadIdx.x % 32; }
  // The sum over the lanes of the same column.
  static float column_sum(float x) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < kParts; ++p) sum += __shfl_sync(0xffffffffu, x, p * kN + lane() % kN);
    return sum;
  }

  void give(uint32_t row, const T* a, const InB* b) const {
    const int n = lane() % kN, part = lane() / kN;
    float x = 0;
    if (part < kParts) {
#pragma unroll 8
      for (int c = part; c < kCols; c += kParts) x = __fmaf_rn(load(a[c]), element_of<T>(b[c * kN + n]), x);
    }
    x = column_sum(x);
    if (lane() < kN) publish_numbered(messages + (uint64_t(row) * kAcross + place) * kN + n, x, now);
  }

  template <class Read, class Reader, class Finish>
  void take(uint32_t row, const T*, const InB*, char*, char*, const Reader& read, const Finish& finish) const {
    const int n = lane() % kN, part = lane() / kN;
    const uint64_t* const from = messages + uint64_t(row) * kAcross * kN + n;
    Read r = {};
    if (lane() < kN) read(row * kN + n, r);
    uint64_t words[kPerThread];
    bool all;
    do {
      all = true;
#pragma unroll
      for (int u = 0; u < kPerThread; ++u) {
        const int q = part + u * kParts;
        words[u] = part < kParts && q < kAcross ? load_relaxed(from + q * kN) : uint64_t(now) << 32;
      }
#pragma unroll
      for (int u = 0; u < kPerThread; ++u) all &= uint32_t(words[u] >> 32) == now;
    } while (!all);
    float x = 0;
#pragma unroll
    for (int u = 0; u < kPerThread; ++u) x += __uint_as_float(uint32_t(words[u]));
    x = column_sum(x);
    if (lane() < kN) finish(row * kN + n, x, r);
  }
};

// Columns [col, col + kCols) of rows of C = A x B, which has kN columns; one warp per row. B is transposed, kCols x kK.
template <class T, class InB, int kCols, int kN, int kK>
struct SharedColumns {
  uint32_t col;

  template <class Read, class Reader, class Finish>
  void run(uint32_t row, const T* a, const InB* b, char*, char*, const Reader& read, const Finish& finish) const {
    const T* const from = a + uint64_t(row) * kK;
#pragma unroll 2
    for (int c = threadIdx.x % 32; c < kCols; c += 32) {
      const uint32_t i = row * kN + col + c;
      Read r;
      read(i, r);
      float x = 0;
#pragma unroll
      for (int k = 0; k < kK; ++k) x = __fmaf_rn(load(from[k]), element_of<T>(b[c * kK + k]), x);
      finish(i, x, r);
    }
  }
};

}  // namespace lockstep
