// Cumulative results along the lines of an array [outer, kN, kInner], called sums here: of additions, products, extremes
// or log(sum(exp)). Nothing is ever subtracted, which would be wrong for infinities.
#pragma once
#include "elements.cuh"

namespace lockstep {

// S describes the scan (scan_cuda.cc): T is the element in memory, R in registers, Sum the type of the sums,
// both() combines two of them, none() is the sum of no elements. Thread blocks have kThreads threads. A line consists of kStretches ranges of kStretch elements. kReverse: from the end.
template <class S>
struct Scan {
  using T = typename S::T;
  using Sum = typename S::Sum;
  static constexpr uint32_t kThreads = S::kThreads, kWarps = kThreads / 32u;

  // The position of element j of a line, in the order of the sum.
  static uint64_t place(uint64_t line, uint64_t j) {
    return line / S::kInner * S::kN * S::kInner + (S::kReverse ? (S::kN - 1 - j) : j) * S::kInner + line % S::kInner;
  }
  static Sum number(T x) { return Sum(load(x)); }
  static T element(Sum x) { return Store<T>::of(typename S::R(x)); }

  // One thread per line.
  static void lines(const T* in, T* out) {
    const uint64_t line = uint64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (line >= S::kLines) return;
    Sum sum = S::none();
    for (uint64_t j = 0; j < S::kN; ++j) {
      const uint64_t at = place(line, j);
      sum = S::both(sum, number(in[at]));
      out[at] = element(sum);
    }
  }

  // Returns the sum of x over this thread and those before it in the thread block. Sets `earlier` to the sum over those
  // before it, and `all` to the sum over all threads.
  static Sum block_scan(Sum x, Sum& earlier, Sum& all) {
    __shared__ Sum warps[kWarps];
    const uint32_t in_warp = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    for (uint32_t d = 1; d < 32u; d *= 2) {
      const Sum before = __shfl_up_sync(0xffffffffu, x, d);
      if (in_warp >= d) x = S::both(before, x);
    }
    if (in_warp == 31u) warps[warp] = x;
    __syncthreads();
    Sum before = S::none();
    all = S::none();
    for (uint32_t w = 0; w < kWarps; ++w) {
      if (w < warp) before = S::both(before, warps[w]);
      all = S::both(all, warps[w]);
    }
    __syncthreads();
    const Sum left = __shfl_up_sync(0xffffffffu, x, 1);
    earlier = S::both(before, in_warp > 0 ? left : S::none());
    return S::both(before, x);
  }

  // Long lines, one thread block per range, in three kernels: range_sums(), sums_before(), ranges(). If there is only
  // one range, ranges() is enough.
  //
  // Writes the sum of each range.
  static void range_sums(const T* in, Sum* sums) {
    const uint64_t line = blockIdx.x / S::kStretches;
    const uint32_t stretch = blockIdx.x % S::kStretches;
    Sum carry = S::none();
    for (uint32_t first = 0; first < S::kStretch; first += kThreads) {
      const uint64_t j = uint64_t(stretch) * S::kStretch + first + threadIdx.x;
      Sum earlier, all;
      block_scan(j < S::kN ? number(in[place(line, j)]) : S::none(), earlier, all);
      carry = S::both(carry, all);
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = carry;
  }

  // Replaces the sum of each range by the sum of the ranges before it. One thread block per line.
  static void sums_before(Sum* sums) {
    Sum* own = sums + uint64_t(blockIdx.x) * S::kStretches;
    Sum carry = S::none();
    for (uint32_t first = 0; first < S::kStretches; first += kThreads) {
      const uint32_t s = first + threadIdx.x;
      const Sum x = s < S::kStretches ? own[s] : S::none();
      Sum earlier, all;
      block_scan(x, earlier, all);
      if (s < S::kStretches) own[s] = S::both(carry, earlier);
      carry = S::both(carry, all);
    }
  }

  // Writes the cumulative sums; `sums` are those of the ranges before.
  static void ranges(const T* in, const Sum* sums, T* out) {
    const uint64_t line = blockIdx.x / S::kStretches;
    const uint32_t stretch = blockIdx.x % S::kStretches;
    Sum carry = S::kStretches > 1 ? sums[blockIdx.x] : S::none();
    for (uint32_t first = 0; first < S::kStretch; first += kThreads) {
      const uint64_t j = uint64_t(stretch) * S::kStretch + first + threadIdx.x;
      Sum earlier, all;
      const Sum upto = block_scan(j < S::kN ? number(in[place(line, j)]) : S::none(), earlier, all);
      if (j < S::kN) out[place(line, j)] = element(S::both(carry, upto));
      carry = S::both(carry, all);
    }
  }
};

}  // namespace lockstep
