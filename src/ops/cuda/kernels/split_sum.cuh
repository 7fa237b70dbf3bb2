// Adds up the partial sums of a split-K product that a previous kernel wrote, in a fixed order.
#pragma once
#include "elements.cuh"

namespace lockstep {

// The partial sums are [kSplits, kResults]. A thread adds up every kDown-th part of kEach adjacent results; then the
// first of kDown threads adds up their sums. Thread blocks have 32 x kDown threads.
template <class Sum, class T, uint64_t kResults, uint32_t kSplits, int kEach, uint32_t kDown>
struct SplitSum {
  struct alignas(kEach * sizeof(Sum)) Some {
    Sum v[kEach];
  };

  static void run(const Sum* __restrict__ parts, T* __restrict__ out) {
    __shared__ Some all[kDown][32];
    const uint32_t tx = threadIdx.x % 32u, ty = threadIdx.x / 32u;
    const uint64_t i = (uint64_t(blockIdx.x) * 32u + tx) * uint32_t(kEach);
    Some sum{};
    if (i < kResults)
#pragma unroll 8
      for (uint32_t s = ty; s < kSplits; s += kDown) {
        const Some x = *reinterpret_cast<const Some*>(parts + s * kResults + i);
#pragma unroll
        for (int e = 0; e < kEach; ++e) sum.v[e] += x.v[e];
      }
    all[ty][tx] = sum;
    __syncthreads();
    if (ty > 0 || i >= kResults) return;
    for (uint32_t y = 1; y < kDown; ++y)
#pragma unroll
      for (int e = 0; e < kEach; ++e) sum.v[e] += all[y][tx].v[e];
#pragma unroll
    for (int e = 0; e < kEach; ++e) out[i + e] = Store<T>::of(sum.v[e]);
  }
};

}  // namespace lockstep
