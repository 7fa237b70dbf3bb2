// Layer norm and RMS norm of rows, and their gradients. A team of threads, a warp or a thread block, computes a row.
// Each thread has packs of adjacent elements of it. They stay in registers between the passes over the row unless the
// row is too long. Sums have a fixed order.
#pragma once
#include "elements.cuh"

namespace lockstep {

// S describes the rows (norm_cuda.cc): T is the element of x, P that of scale and bias, R the type of arithmetic. There
// are kRows rows of kD elements for each of several batch elements, which have their own scale and bias. A team has
// kTeam threads, each with kPacks packs of kVector elements; the last ones may be outside of the row. kKept: they stay
// in registers. kCentered: layer norm, else RMS norm. Of a gradient: kResidual, whether an array is added to dx, and
// kSums, whether the columns of the result are summed.
template <class S>
struct Norm {
  using T = typename S::T;
  using P = typename S::P;
  using R = typename S::R;
  static constexpr uint32_t kVector = S::kVector, kPacks = S::kPacks, kTeam = S::kTeam, kThreads = S::kThreads,
                            kTeams = kThreads / kTeam;
  static constexpr uint64_t kD = S::kD;
  static constexpr uint32_t kSharedSumBytes = 24 << 10;
  using Values = R[kVector];

  static uint32_t team() { return threadIdx.x / kTeam; }
  // The first element of a pack of this thread.
  static uint64_t place(uint32_t pack) { return (uint64_t(pack) * kTeam + threadIdx.x % kTeam) * kVector; }

  template <class E>
  static void convert(const Side<E, kVector>& pack, Values& to) {
#pragma unroll
    for (uint32_t q = 0; q < kVector; ++q) to[q] = R(load(pack.v[q]));
  }
  template <class E>
  static void load_pack(const E* from, uint64_t i, Values& to) {
    Side<E, kVector> pack;
    load_vector(pack, from, i);
    convert(pack, to);
  }
  static void store_pack(T* to, uint64_t i, const Values& values) {
    Side<T, kVector> pack;
    store_side(pack, values);
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
    Side<T, kVector> kept[S::kKept ? kPacks : 1];

    explicit Own(const T* row) : from(row) {
      if constexpr (S::kKept) for_packs([&](uint32_t p, uint64_t i) { load_vector(kept[p], from, i); });
    }
    void get(uint32_t p, uint64_t i, Values& to) const {
      if constexpr (S::kKept)
        convert(kept[p], to);
      else
        load_pack(from, i, to);
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

  // The sums of columns over the rows of a thread block: in registers if elements are, else in their place in global
  // memory.
  struct ColumnSums {
    R* to;
    R kept[S::kKept ? kPacks : 1][kVector];

    explicit ColumnSums(R* global) : to(global) {
      if constexpr (S::kKept) {
#pragma unroll
        for (uint32_t p = 0; p < kPacks; ++p)
          for (uint32_t q = 0; q < kVector; ++q) kept[p][q] = 0;
      } else {
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
        constexpr uint32_t kFit = kSharedSumBytes / (kD * sizeof(R));
        constexpr uint32_t kTogether = kFit == 0 ? 1 : kFit < kTeams ? kFit : kTeams;
        constexpr uint32_t kColumns = (kD + kThreads - 1) / kThreads;  // of a thread
        __shared__ __align__(16) R sums[kTogether][kD];
        R all[kColumns] = {};
        for (uint32_t first = 0; first < kTeams; first += kTogether) {
          __syncthreads();
          if (team() - first < kTogether)
            for_packs([&](uint32_t p, uint64_t i) {
              Side<R, kVector> pack;
#pragma unroll
              for (uint32_t q = 0; q < kVector; ++q) pack.v[q] = kept[p][q];
              constexpr uint32_t kPart = kVector * sizeof(R) > 16 ? 16 / sizeof(R) : kVector;  // of 16 bytes
#pragma unroll
              for (uint32_t q = 0; q < kVector; q += kPart)
                *reinterpret_cast<Side<R, kPart>*>(&sums[team() - first][i + q]) =
                    *reinterpret_cast<const Side<R, kPart>*>(&pack.v[q]);
            });
          __syncthreads();
#pragma unroll
          for (uint32_t c = 0; c < kColumns; ++c)
            if (const uint64_t i = threadIdx.x + c * kThreads; i < kD)
              for (uint32_t t = 0; t < kTogether && first + t < kTeams; ++t) all[c] += sums[t][i];
        }
#pragma unroll
        for (uint32_t c = 0; c < kColumns; ++c)
          if (const uint64_t i = threadIdx.x + c * kThreads; i < kD) to[i] = all[c];
      }
    }
  };

  // Memory of a gradient. `residual` and `result_sums` are null if there are none.
  struct Backward {
    const T* x;
    const P* scale;
    const R *mean, *rstd;
    const T *dy, *residual;
    T* dx;
    R *scale_sums, *bias_sums, *result_sums;  // of each thread block
  };

  // dx, and the sums for dscale and dbias over the kOwn rows of the thread block. A batch element has kBlocks thread
  // blocks. dx may be written over x, dy or the residual.
  static void backward(const Backward& a) {
    const uint64_t group = blockIdx.x / S::kBlocks, first = blockIdx.x % S::kBlocks * S::kOwn;
    const uint64_t end = first + S::kOwn < S::kRows ? first + S::kOwn : S::kRows;
    const P* const scales = a.scale + group * kD;
    struct None {
      explicit None(R*) {}
      void add(uint32_t, uint64_t, uint32_t, R) {}
      void finish() {}
    };
    ColumnSums scale_sums(a.scale_sums + blockIdx.x * kD);
    std::conditional_t<S::kCentered, ColumnSums, None> bias_sums(a.bias_sums + blockIdx.x * kD);
    std::conditional_t<S::kSums, ColumnSums, None> result_sums(a.result_sums + blockIdx.x * kD);
    for (uint64_t r = first + team(); r < end; r += kTeams) {
      const uint64_t row = group * S::kRows + r;
      R center = 0;
      if constexpr (S::kCentered) center = a.mean[row];
      const R factor = a.rstd[row];
      const Own own(a.x + row * kD), sent(a.dy + row * kD), more((S::kResidual ? a.residual : a.dy) + row * kD);
      // Calls f(pack, i, normalized elements, dy, dy * scale).
      const auto each = [&](const auto& f) {
        for_packs([&](uint32_t p, uint64_t i) {
          Values n, d, g;
          own.get(p, i, n);
          sent.get(p, i, d);
          load_pack(scales, i, g);
#pragma unroll
          for (uint32_t q = 0; q < kVector; ++q) {
            n[q] = (n[q] - center) * factor;
            g[q] *= d[q];
          }
          f(p, i, n, d, g);
        });
      };
      R sum = 0, normal_sum = 0;
      each([&](uint32_t p, uint64_t i, const Values& n, const Values& d, const Values& g) {
#pragma unroll
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
      each([&](uint32_t p, uint64_t i, Values& n, const Values&, const Values& g) {
        Values added;
        if constexpr (S::kResidual) more.get(p, i, added);
#pragma unroll
        for (uint32_t q = 0; q < kVector; ++q) {
          n[q] = factor * (g[q] - g_mean - n[q] * normal_mean);
          if constexpr (S::kResidual) n[q] += added[q];
          result_sums.add(p, i, q, n[q]);
        }
        store_pack(a.dx, row * kD + i, n);
      });
    }
    scale_sums.finish();
    bias_sums.finish();
    result_sums.finish();
  }

  // Adds up sums of the thread blocks [groups, kBlocks, kD]: 32 columns of one batch element by the thread block
  // `block`. Its warps add up a part of the rows each.
  template <class E>
  static void add_blocks(uint32_t block, const R* sums, E* to) {
    constexpr uint32_t kParts = kThreads / 32;
    constexpr uint64_t kAcross = (kD + 31) / 32;
    __shared__ R parts[kThreads];
    const uint64_t group = block / kAcross, column = block % kAcross * 32 + threadIdx.x % 32;
    const uint32_t part = threadIdx.x / 32;
    R sum = 0;
    if (column < kD)
#pragma unroll 8
      for (uint64_t b = part; b < S::kBlocks; b += kParts) sum += sums[(group * S::kBlocks + b) * kD + column];
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (part > 0 || column >= kD) return;
    for (uint32_t p = 1; p < kParts; ++p) sum += parts[p * 32 + threadIdx.x];
    to[group * kD + column] = Store<E>::of(sum);
  }
};

}  // namespace lockstep
