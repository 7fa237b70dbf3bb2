// Elements of a matrix that are computed and written one by one, and the sums of their columns. A thread block has some
// columns of some rows and writes their sums; another kernel adds up those of all thread blocks. The order of the sums
// depends only on the shape.
#pragma once
#include "elements.cuh"

namespace lockstep {

// Writes vectors of elements and adds them to the sums of their columns.
template <class T, int kCount>
struct SummedColumns {
  T* to;
  float* sums;  // [kCount]
};
template <class T, int kCount>
inline void store_vector(const SummedColumns<T, kCount>& summed, uint64_t i, const Side<T, kCount>& x) {
  store_vector(summed.to, i, x);
#pragma unroll
  for (int q = 0; q < kCount; ++q) summed.sums[q] += load(x.v[q]);
}

// S describes the matrix of kRows x kColumns: thread blocks of kThreads threads have kAcross vectors of kWide columns,
// of kOwn rows; a thread has kTogether of its rows in flight.
template <class S>
struct ColumnSums {
  static constexpr uint32_t kDown = S::kThreads / S::kAcross, kVectors = S::kColumns / S::kWide,
                            kBlocksAcross = (kVectors + S::kAcross - 1) / S::kAcross;

  // read(i, r) loads what the vector at element i needs, of type Read; finish(i, r, sums) computes it and adds it to the
  // sums. `partial` is [thread blocks down, kColumns].
  template <class Read, class F, class G>
  static void run(uint32_t block, float* partial, const F& read, const G& finish) {
    __shared__ float parts[S::kThreads * S::kWide];
    const uint32_t tx = threadIdx.x % S::kAcross, ty = threadIdx.x / S::kAcross;
    const uint32_t vector = block % kBlocksAcross * S::kAcross + tx, down = block / kBlocksAcross;
    const uint32_t end = (down + 1) * S::kOwn < S::kRows ? (down + 1) * S::kOwn : S::kRows;
    float sums[S::kWide] = {};
    if (vector < kVectors)
      for (uint32_t first = down * S::kOwn + ty; first < end; first += kDown * S::kTogether) {
        Read all[S::kTogether] = {};
#pragma unroll
        for (uint32_t u = 0; u < S::kTogether; ++u)
          if (first + u * kDown < end) read(place(first + u * kDown, vector), all[u]);
#pragma unroll
        for (uint32_t u = 0; u < S::kTogether; ++u)
          if (first + u * kDown < end) finish(place(first + u * kDown, vector), all[u], sums);
      }
#pragma unroll
    for (uint32_t q = 0; q < S::kWide; ++q) parts[(ty * S::kWide + q) * S::kAcross + tx] = sums[q];
    __syncthreads();
    // Adjacent threads add up adjacent vectors.
    for (uint32_t k = threadIdx.x; k < S::kAcross * S::kWide; k += S::kThreads) {
      const uint32_t v = block % kBlocksAcross * S::kAcross + k % S::kAcross;
      float sum = 0;
      for (uint32_t y = 0; y < kDown; ++y) sum += parts[y * S::kAcross * S::kWide + k];
      if (v < kVectors) partial[down * S::kColumns + v * S::kWide + k / S::kAcross] = sum;
    }
  }

 private:
  using Index = typename S::Index;
  static Index place(uint32_t row, uint32_t vector) { return Index(row) * S::kColumns + vector * S::kWide; }
};

// Adds up kParts sums of each of kColumns columns, by threads of their own.
template <uint32_t kParts, uint32_t kColumns, class T>
inline void add_column_sums(uint32_t column, const float* partial, T* to) {
  if (column >= kColumns) return;
  float sum = 0;
#pragma unroll 16
  for (uint32_t p = 0; p < kParts; ++p) sum += partial[p * kColumns + column];
  to[column] = Store<T>::of(sum);
}

}  // namespace lockstep
