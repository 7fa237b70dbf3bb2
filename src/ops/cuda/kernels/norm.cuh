// Layer norm and RMS norm of rows, and their gradients. A team of threads, a warp or a thread block, computes a row.
// Each thread has packs of adjacent elements of it. They stay in registers between the passes over the row unless the
// row is too long. Sums have a fixed order.
#pragma once
#include "elements.cuh"

namespace lockstep {

// S describes the rows (norm_cuda.cc): T is the element of x, P that of scale and bias, R the type of arithmetic. There
// are kRows rows of kD elements for each of several batch elements, which have their own scale and bias. A team has
// kTeam threads, each with kPacks packs of kVector elements; the last ones may be outside of the row. kKept: they stay
// in registers. kCentered: layer norm, else RMS norm.
template <class S>
struct Norm {
  using T = typename S::T;
  using P = typename S::P;
  using R = typename S::R;
  static constexpr uint32_t kVector = S::kVector, kPacks = S::kPacks, kTeam = S::kTeam, kThreads = S::kThreads,
                            kTeams = kThreads / kTeam;
  static constexpr uint64_t kD = S::kD;
  using Values = R[kVector];

  static uint32_t team() { return threadIdx.x / kTeam; }
  // The first element of a pack of this thread.
  static uint64_t place(uint32_t pack) { return (uint64_t(pack) * kTeam + threadIdx.x % kTeam) * kVector; }

  template <class E>
  static void load_pack(const E* from, uint64_t i, Values& to) {
    Side<E, kVector> pack;
    load_vector(pack, from, i);
#pragma unroll
    for (uint32_t q = 0; q < kVector; ++q) to[q] = R(load(pack.v[q]));
  }
  static void store_pack(T* to, uint64_t i, const Values& values) {
    Side<T, kVector> pack;
#pragma unroll
    for (uint32_t q = 0; q < kVector; ++q) pack.v[q] = Store<T>::of(values[q]);
    store_vector(to, i, pack);
  }

  // Calls f(pack, i) for the packs of this thread, which begin at element i.
  template <class F>
  static void for_packs(const F& f) {
    if constexpr (S::kKept) {
#pragma unroll
      for (uint32_t p = 0; p < kPacks; ++p)
        if (place(p) < kD) f(p, place(p));
    } else {
      for (uint32_t p = 0; p < kPacks; ++p)
        if (place(p) < kD) f(p, place(p));
    }
  }

  // This thread's elements of a row.
  struct Own {
    const T* from;
    R kept[S::kKept ? kPacks : 1][kVector];

    explicit Own(const T* row) : from(row) {
      if constexpr (S::kKept) for_packs([&](uint32_t p, uint64_t i) { load_pack(from, i, kept[p]); });
    }
    void get(uint32_t p, uint64_t i, Values& to) const {
      if constexpr (S::kKept) {
#pragma unroll
        for (uint32_t q = 0; q < kVector; ++q) to[q] = kept[p][q];
      } else {
        load_pack(from, i, to);
      }
    }
  };

  // The sum of x over the team.
  static R team_sum(R x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    if constexpr (kTeam > 32) {
      __shared__ R warps[kTeam / 32];
      __syncthreads();
      if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
      __syncthreads();
      x = 0;
      for (uint32_t w = 0; w < kTeam / 32; ++w) x += warps[w];
    }
    return x;
  }

  static void forward(const T* x, const P* scale, const P* bias, T* y, R* mean, R* rstd) {
    const uint64_t row = uint64_t(blockIdx.x) * kTeams + team();
    if (row >= S::kTotal) return;
    const Own own(x + row * kD);
    const P* const scales = scale + row / S::kRows * kD;
    const P* const biases = bias + row / S::kRows * kD;
    R center = 0;
    if constexpr (S::kCentered) {
      R sum = 0;
      for_packs([&](uint32_t p, uint64_t i) {
        Values v;
        own.get(p, i, v);
        for (uint32_t q = 0; q < kVector; ++q) sum += v[q];
      });
      center = team_sum(sum) / R(kD);
    }
    R squares = 0;
    for_packs([&](uint32_t p, uint64_t i) {
      Values v;
      own.get(p, i, v);
      for (uint32_t q = 0; q < kVector; ++q) squares += (v[q] - center) * (v[q] - center);
    });
    const R factor = math::rsqrt(team_sum(squares) / R(kD) + R(S::kEpsilon));
    if (threadIdx.x % kTeam == 0) {
      if constexpr (S::kCentered) mean[row] = center;
      rstd[row] = factor;
    }
    for_packs([&](uint32_t p, uint64_t i) {
      Values v, s, b = {};
      own.get(p, i, v);
      load_pack(scales, i, s);
      if constexpr (S::kCentered) load_pack(biases, i, b);
      for (uint32_t q = 0; q < kVector; ++q) {
        v[q] = (v[q] - center) * factor * s[q];
        if constexpr (S::kCentered) v[q] += b[q];
      }
      store_pack(y, row * kD + i, v);
    });
  }

  // The sums for dscale or dbias over the rows of a thread block: in registers if elements are, else in their place in
  // global memory. Null: there are none.
  struct ParameterSums {
    R* to;
    R kept[S::kKept ? kPacks : 1][kVector];

    explicit ParameterSums(R* global) : to(global) {
      if constexpr (S::kKept) {
#pragma unroll
        for (uint32_t p = 0; p < kPacks; ++p)
          for (uint32_t q = 0; q < kVector; ++q) kept[p][q] = 0;
      } else if (to) {
        for_packs([&](uint32_t, uint64_t i) {
          for (uint32_t q = 0; q < kVector; ++q) to[i + q] = 0;
        });
      }
    }
    void add(uint32_t p, uint64_t i, uint32_t q, R x) {
      if constexpr (S::kKept)
        kept[p][q] += x;
      else
        to[i + q] += x;
    }
    // Adds the sums of the teams of the thread block, in order, and writes them.
    void finish() {
      if constexpr (S::kKept && kTeams == 1) {
        for_packs([&](uint32_t p, uint64_t i) {
          for (uint32_t q = 0; q < kVector; ++q) to[i + q] = kept[p][q];
        });
      } else if constexpr (S::kKept) {
        __shared__ R sums[kD];
        for (uint32_t t = 0; t < kTeams; ++t) {
          __syncthreads();
          if (team() != t) continue;
          for_packs([&](uint32_t p, uint64_t i) {
            for (uint32_t q = 0; q < kVector; ++q) sums[i + q] = t == 0 ? kept[p][q] : sums[i + q] + kept[p][q];
          });
        }
        __syncthreads();
        for (uint64_t i = threadIdx.x; i < kD; i += kThreads) to[i] = sums[i];
        __syncthreads();
      }
    }
  };

  // dx, and the sums for dscale and dbias over the kOwn rows of the thread block. A batch element has kBlocks thread
  // blocks.
  static void backward(const T* x, const P* scale, const R* mean, const R* rstd, const T* dy, T* dx, R* dscale,
                       R* dbias) {
    const uint64_t group = blockIdx.x / S::kBlocks, first = blockIdx.x % S::kBlocks * S::kOwn;
    const uint64_t end = first + S::kOwn < S::kRows ? first + S::kOwn : S::kRows;
    const P* const scales = scale + group * kD;
    ParameterSums scale_sums(dscale + blockIdx.x * kD);
    ParameterSums bias_sums(S::kCentered ? dbias + blockIdx.x * kD : nullptr);
    for (uint64_t r = first + team(); r < end; r += kTeams) {
      const uint64_t row = group * S::kRows + r;
      R center = 0;
      if constexpr (S::kCentered) center = mean[row];
      const R factor = rstd[row];
      const Own own(x + row * kD), sent(dy + row * kD);
      // Calls f(pack, i, normalized elements, dy, dy * scale).
      const auto each = [&](const auto& f) {
        for_packs([&](uint32_t p, uint64_t i) {
          Values n, d, g;
          own.get(p, i, n);
          sent.get(p, i, d);
          load_pack(scales, i, g);
          for (uint32_t q = 0; q < kVector; ++q) {
            n[q] = (n[q] - center) * factor;
            g[q] *= d[q];
          }
          f(p, i, n, d, g);
        });
      };
      R sum = 0, normal_sum = 0;
      each([&](uint32_t p, uint64_t i, const Values& n, const Values& d, const Values& g) {
        for (uint32_t q = 0; q < kVector; ++q) {
          if constexpr (S::kCentered) {
            sum += g[q];
            bias_sums.add(p, i, q, d[q]);
          }
          normal_sum += g[q] * n[q];
          scale_sums.add(p, i, q, d[q] * n[q]);
        }
      });
      R g_mean = 0;
      if constexpr (S::kCentered) g_mean = team_sum(sum) / R(kD);
      const R normal_mean = team_sum(normal_sum) / R(kD);
      each([&](uint32_t, uint64_t i, Values& n, const Values&, const Values& g) {
        for (uint32_t q = 0; q < kVector; ++q) n[q] = factor * (g[q] - g_mean - n[q] * normal_mean);
        store_pack(dx, row * kD + i, n);
      });
    }
    scale_sums.finish();
    if constexpr (S::kCentered) bias_sums.finish();
  }

  // Adds up the sums of the thread blocks [groups, kBlocks, kD]. A thread block has 32 columns of one batch element;
  // its warps add up a part of the rows each.
  static void add_blocks(const R* sums, P* to) {
    constexpr uint32_t kParts = kThreads / 32;
    constexpr uint64_t kAcross = (kD + 31) / 32;
    __shared__ R parts[kThreads];
    const uint64_t group = blockIdx.x / kAcross, column = blockIdx.x % kAcross * 32 + threadIdx.x % 32;
    const uint32_t part = threadIdx.x / 32;
    R sum = 0;
    if (column < kD)
      for (uint64_t b = part; b < S::kBlocks; b += kParts) sum += sums[(group * S::kBlocks + b) * kD + column];
    __syncthreads();
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (part > 0 || column >= kD) return;
    for (uint32_t p = 1; p < kParts; ++p) sum += parts[p * 32 + threadIdx.x];
    to[group * kD + column] = Store<P>::of(typename S::PR(sum));
  }
};

}  // namespace lockstep
