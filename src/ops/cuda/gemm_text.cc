// Matrix products of steps: the tensor cores' tile, with whatever is to be done with each element of the result.
#include "ops/cuda/gemm_text.h"

#include <fmt/format.h>

#include "base/md5.h"
#include "ops/cuda/gemm_choice.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

const char* const kGemmText = R"(#pragma once
#include "elements.h"
namespace lockstep {

template <int kBytes>
inline void copy_async(void* to, const void* from, bool inside) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(to));
  const int size = inside ? kBytes : 0;  // what is not read is zero
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
}
inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
inline void wait_for() { asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory"); }

// What a thread brings of the tiles of one operand, step by step along the sum. kFree is the tile's extent along the
// other dimension, of kWhole; kDeepFirst: the stored rows are those of the sum.
template <class T, int kThreads, int kFree, int kDeep, bool kDeepFirst, int kStep, int kWhole, int kSum, int kLead,
          bool kVector>
struct Feed {
  static constexpr int kEach = kVector ? 16 / int(sizeof(T)) : 1, kAcross = (kDeepFirst ? kFree : kDeep) / kEach;
  static constexpr int kAll = (kDeepFirst ? kDeep : kFree) * kAcross, kRounds = (kAll + kThreads - 1) / kThreads;
  static constexpr int kRowsAtOnce = kThreads / kAcross;
  static_assert(kThreads % kAcross == 0, "whole rows at a time");
  const T* base;
  const T* from;  // of the thread's first element
  int row, col, free;

  Feed(const T* matrix, int its_free)
      : base(matrix), row(threadIdx.x / kAcross), col(threadIdx.x % kAcross * kEach), free(its_free) {
    from = matrix + (kDeepFirst ? int64_t(row) * kLead + free + col : int64_t(free + row) * kLead + col);
  }
  void fetch(T* to, int step) const {
    const T* const first = from + int64_t(step) * (kDeepFirst ? kDeep * kLead : kDeep);
    T* const place = to + row * kStep + col;
#pragma unroll
    for (int u = 0; u < kRounds; ++u) {
      const int r = row + u * kRowsAtOnce;
      if (kAll % kThreads != 0 && r >= kAll / kAcross) continue;
      const bool in = (kWhole % kFree == 0 || free + (kDeepFirst ? col : r) < kWhole) &&
                      (kSum % kDeep == 0 || step * kDeep + (kDeepFirst ? r : col) < kSum);
      const T* const at = in ? first + int64_t(u * kRowsAtOnce) * kLead : base;
      if constexpr (kVector)
        copy_async<16>(place + u * kRowsAtOnce * kStep, at, in);
      else if constexpr (sizeof(T) == 4)
        copy_async<4>(place + u * kRowsAtOnce * kStep, at, in);
      else
        place[u * kRowsAtOnce * kStep] = in ? *at : T{};
    }
  }
};

// The tensor cores take the upper 19 bits of a float and leave the rest. A little more than the float is within 0.7 of
// the last of those bits of it, on average as often above as below, and is the same where the rest is zero; to round to
// the nearest takes eight times as long.
inline uint32_t tf32(uint32_t x) { return __float_as_uint(__uint_as_float(x) * 1.0003384f); }

// Matrices of eight rows of sixteen bytes, four or two at a time, from the rows whose addresses the lanes give: a
// thread has word t of row g, or, turned around, the halves 2t and 2t + 1 of column g.
template <bool kTurned, int kCount>
inline void load_matrices(uint32_t* to, const void* row) {
  const uint32_t at = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (kCount == 4 && kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
  else if constexpr (kCount == 4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
  else if constexpr (kTurned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(at) : "memory");
}

// kCount floats that lie side by side, where that many begin at a multiple of their size.
template <int kCount>
inline void load_floats(uint32_t* to, const float* from) {
  if constexpr (kCount == 4) {
    const uint4 x = *reinterpret_cast<const uint4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  } else if constexpr (kCount == 2) {
    const uint2 x = *reinterpret_cast<const uint2*>(from);
    to[0] = x.x, to[1] = x.y;
  } else {
    static_assert(kCount == 1, "one, two or four");
    to[0] = *reinterpret_cast<const uint32_t*>(from);
  }
}

template <int kCount>
inline void store_floats(float* to, const float* x) {
  if constexpr (kCount == 4)
    *reinterpret_cast<float4*>(to) = make_float4(x[0], x[1], x[2], x[3]);
  else if constexpr (kCount == 2)
    *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
  else
    *to = x[0];
}

// What a warp multiplies at a time: kTall x 16 rows by kWide x 8 columns. Which row or column of the tile that is
// depends on how the tile lies in memory: where the sum's elements do not follow each other there, floats of several
// rows or columns do, and a thread takes those.
template <class T, int kTall, int kWide, bool kTransposeA, bool kTransposeB, int kStepA, int kStepB>
struct Fragments {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kDeep = kFloat ? 8 : 16, kEach = 16 / int(sizeof(T));
  static constexpr bool kSpreadA = kFloat && kTransposeA, kSpreadB = kFloat && !kTransposeB;
  uint32_t a[kTall][4], b[kWide][2];

  // Floats that a thread takes side by side, at most four; the next are those of eight such groups on.
  static constexpr int kSideA = 2 * kTall < 4 ? 2 * kTall : 4, kSideB = kWide < 4 ? kWide : 4;

  static int row(int i, int r) {
    const int e = 2 * i + r / 8;  // of the floats that the thread of r % 8 takes
    return kSpreadA ? e / kSideA * 8 * kSideA + r % 8 * kSideA + e % kSideA : i * 16 + r;
  }
  static int col(int j, int n) {
    return kSpreadB ? j / kSideB * 8 * kSideB + n * kSideB + j % kSideB : j * 8 + n;
  }

  // `from` is where the warp's part of the tile begins, at the step of the sum that is due.
  void load_a(const T* from, int lane) {
    if constexpr (kSpreadA) {
      uint32_t x[2][2 * kTall];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2 * kTall; e += kSideA)
          load_floats<kSideA>(x[half] + e, from + (lane % 4 + half * 4) * kStepA + e * 8 + lane / 4 * kSideA);
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = x[e / 2][2 * i + e % 2];
    } else {
#pragma unroll
      for (int i = 0; i < kTall; ++i)
        load_matrices<kTransposeA, 4>(
            a[i], kTransposeA ? from + (lane % 8 + lane / 16 * 8) * kStepA + i * 16 + lane / 8 % 2 * 8
                              : from + (i * 16 + lane % 16) * kStepA + lane / 16 * kEach);
    }
    if constexpr (kFloat) {
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = tf32(a[i][e]);
    }
  }
  template <bool kRound = true>
  void load_b(const T* from, int lane) {
    if constexpr (kSpreadB) {
      uint32_t x[2][kWide];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kWide; j += kSideB)
          load_floats<kSideB>(x[half] + j, from + (lane % 4 + half * 4) * kStepB + j * 8 + lane / 4 * kSideB);
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) b[j][e] = x[e][j];
    } else {
      constexpr int kAtOnce = kWide % 2 == 0 ? 2 : 1;
#pragma unroll
      for (int j = 0; j < kWide; j += kAtOnce)
        load_matrices<!kTransposeB, 2 * kAtOnce>(
            b[j], kTransposeB
                      ? from + (j * 8 + lane % 8 + (kAtOnce == 2 ? lane / 16 * 8 : 0)) * kStepB + lane / 8 % 2 * kEach
                      : from + (lane % 8 + lane / 8 % 2 * 8) * kStepB + j * 8 + (kAtOnce == 2 ? lane / 16 * 8 : 0));
    }
    if constexpr (kFloat && kRound) {
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) b[j][e] = tf32(b[j][e]);
    }
  }
  // What the warp multiplied, to its part of a tile of floats.
  static void store(const float (&c)[kTall][kWide][4], float* to, int line, int lane) {
    constexpr int kSide = kSpreadB ? kSideB : 2;
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int u = 0; u < 2 * kWide / kSide; ++u) {
          float x[kSide];
#pragma unroll
          for (int e = 0; e < kSide; ++e)
            x[e] = kSpreadB ? c[i][u / 2 * kSide + e][2 * half + u % 2] : c[i][u][2 * half + e];
          const int at = kSpreadB ? col(u / 2 * kSide, lane % 4 * 2 + u % 2) : col(u, lane % 4 * 2);
          store_floats<kSide>(to + row(i, lane / 4 + half * 8) * line + at, x);
        }
  }
  void multiply(float (&c)[kTall][kWide][4]) const {
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j) multiply_one(T{}, c[i][j], a[i], b[j]);
  }

 private:
  static void multiply_one(float, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
  static void multiply_one(bf16, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
  static void multiply_one(f16, float (&c)[4], const uint32_t (&x)[4], const uint32_t (&y)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
};

// How many of so many elements of the result a thread reads what belongs to them for at once: a read takes long, and
// registers are plenty by then.
constexpr int group_of(int own, int bytes) {
  int out = own < 16 ? own : 16;
  while (out > 4 && out * bytes > 64) out /= 2;
  return out;
}

// A word of a sum on its way from one block to another. Zero says that it is not there yet: of the floats one that no
// arithmetic makes, a NaN of all ones, is taken for another NaN.
inline uint32_t on_its_way(float x) {
  const uint32_t word = ~__float_as_uint(x);
  return word ? word : 0x80000000u;
}
inline float arrived(uint32_t word) { return __uint_as_float(~word); }
inline void give(float* to, const float4& x) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(on_its_way(x.x)),
               "r"(on_its_way(x.y)), "r"(on_its_way(x.z)), "r"(on_its_way(x.w)) : "memory");
}
inline uint32_t look_at(const float* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
inline void take(float* from) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(from), "r"(0) : "memory"); }

// One tile of C = A x B, batched. The warps of the block share the tile's rows, its columns, and the sum, and kSplits
// blocks share the sum once more; what each of the latter added up is added in order. Then, for element i of the dense
// C, read(i, r) reads what else is needed to r, and finish(i, x, r) makes something of it.
template <class S>
struct Gemm {
  using T = typename S::T;
  static constexpr int kPadK = 16 / int(sizeof(T)), kPad = 8;  // so that a warp reads from all banks
  static constexpr int kStepA = S::kTransposeA ? S::kTall + kPad : S::kDeep + kPadK;
  static constexpr int kStepB = S::kTransposeB ? S::kDeep + kPadK : S::kWide + kPad;
  static constexpr int kSizeA = (S::kTransposeA ? S::kDeep : S::kTall) * kStepA;
  static constexpr int kSizeB = (S::kTransposeB ? S::kWide : S::kDeep) * kStepB;
  static constexpr int kWarpTall = S::kTall / S::kWarpRows, kWarpWide = S::kWide / S::kWarpCols;
  static constexpr int kI = kWarpTall / 16, kJ = kWarpWide / 8;
  using F = Fragments<T, kI, kJ, S::kTransposeA, S::kTransposeB, kStepA, kStepB>;
  static constexpr int kSteps = (S::kK + S::kDeep - 1) / S::kDeep;
  static constexpr int kDown = (S::kM + S::kTall - 1) / S::kTall, kAcross = (S::kN + S::kWide - 1) / S::kWide;
  static constexpr int kMost = (kSteps + S::kSplits - 1) / S::kSplits;  // steps of a block
  // Of the sums in the block's memory, one tile for each of the warps that share a sum.
  static constexpr int kLine = S::kWide + (F::kSpreadB ? 4 : 8), kTile = S::kTall * kLine;
  static constexpr int kShare = S::kTall * S::kWide / S::kSplits;  // of the tile, that a block finishes
  static constexpr int kSlots = kMost < S::kStages ? kMost : S::kStages;  // for A's tiles, and then for as many of B's

  // What a block computes: the part `split` of the sums of a tile, at `row` and `col`.
  struct Place {
    int split, whole, batch, row, col;
    explicit Place(uint32_t block)
        : split(block % S::kSplits),
          whole(block / S::kSplits),
          batch(whole / (kDown * kAcross)),
          row(whole % (kDown * kAcross) % kDown * S::kTall),
          col(whole % (kDown * kAcross) / kDown * S::kWide) {}
    int first() const { return split * kSteps / S::kSplits; }  // step of the sum
    int count() const { return (split + 1) * kSteps / S::kSplits - first(); }
  };
  using FeedA =
      Feed<T, S::kThreads, S::kTall, S::kDeep, S::kTransposeA, kStepA, S::kM, S::kK, S::kLeadA, S::kVectorA>;
  using FeedB =
      Feed<T, S::kThreads, S::kWide, S::kDeep, !S::kTransposeB, kStepB, S::kN, S::kK, S::kLeadB, S::kVectorB>;

  // The first tiles of one operand, when nobody uses the block's memory until run().
  static void bring_a(uint32_t block, const T* a, char* shared) {
    const Place at(block);
    bring<kSizeA>(FeedA(a + int64_t(at.batch) * S::kStrideA, at.row), at, reinterpret_cast<T*>(shared));
  }
  static void bring_b(uint32_t block, const T* b, char* shared) {
    const Place at(block);
    bring<kSizeB>(FeedB(b + int64_t(at.batch) * S::kStrideB, at.col), at, reinterpret_cast<T*>(shared) + kSlots * kSizeA);
  }

  // `partial`: where blocks give each other their sums, all zero before and after; unused with one split. `early`: what was
  // brought already, bit 0 for a and bit 1 for b.
  template <class Read, class Reader, class Finish>
  static void run(uint32_t block, const T* a, const T* b, float* partial, char* shared, const Reader& read,
                  const Finish& finish, uint32_t early) {
    const Place own(block);
    const auto [split, whole, batch, row, col] = own;
    const float* const sums = reinterpret_cast<const float*>(shared);
    // What a thread finishes, a group at once, for which all is on its way before the first is. Where registers are left,
    // what the first group needs besides the product is, while that is computed.
    constexpr bool kEarly = kI * kJ <= 4;
    constexpr int kOwn = (kShare + S::kThreads - 1) / S::kThreads;
    constexpr int kGroup = group_of(kOwn, int(sizeof(Read)) + (S::kSplits > 1 ? 4 * S::kSplits : 0));
    const auto place_of = [&](int e) { return split * kShare + int(threadIdx.x) + e * S::kThreads; };
    const auto inside = [&](int e) {
      return (kShare % S::kThreads == 0 || int(threadIdx.x) + e * S::kThreads < kShare) &&
             (S::kM % S::kTall == 0 || row + place_of(e) / S::kWide < S::kM) &&
             (S::kN % S::kWide == 0 || col + place_of(e) % S::kWide < S::kN);
    };
    const auto at = [&](int e) {
      return (uint32_t(batch) * S::kM + row + place_of(e) / S::kWide) * S::kN + col + place_of(e) % S::kWide;
    };
    Read reads[kGroup];
    const auto read_group = [&](int u) {
#pragma unroll
      for (int e = 0; e < kGroup; ++e)
        if (inside(u + e)) read(at(u + e), reads[e]);
    };
    if constexpr (kEarly) read_group(0);
    multiply(a + int64_t(batch) * S::kStrideA, b + int64_t(batch) * S::kStrideB, own, early, shared);
    const auto sum_at = [&](int place) {
      float x = 0;
#pragma unroll
      for (int p = 0; p < S::kParts; ++p) x += sums[p * kTile + place / S::kWide * kLine + place % S::kWide];
      return x;
    };
    // What others finish goes to them.
    if constexpr (S::kSplits > 1) {
      float* const given = partial + int64_t(block) * S::kTall * S::kWide;
#pragma unroll 4
      for (int place = threadIdx.x * 4; place < S::kTall * S::kWide; place += S::kThreads * 4) {
        if (place / kShare == split) continue;
        float4 x = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int p = 0; p < S::kParts; ++p) {
          const float4 y =
              *reinterpret_cast<const float4*>(sums + p * kTile + place / S::kWide * kLine + place % S::kWide);
          x = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
        }
        give(given + place, x);
      }
    }
#pragma unroll 1
    for (int u = 0; u < kOwn; u += kGroup) {
      if (u > 0 || !kEarly) read_group(u);
      uint32_t words[kGroup][S::kSplits];
      if constexpr (S::kSplits > 1) {
        float* const from = partial + (int64_t(whole) * S::kSplits * S::kTall * S::kWide + split * kShare + threadIdx.x);
        const auto each = [&](auto&& done) {
#pragma unroll
          for (int e = 0; e < kGroup; ++e)
#pragma unroll
            for (int q = 0; q < S::kSplits; ++q)
              if (q != split && inside(u + e)) done(words[e][q], from + q * S::kTall * S::kWide + (u + e) * S::kThreads);
        };
        bool all;
        do {
          all = true;
          each([&](uint32_t& word, const float* at) { word = look_at(at); });
          each([&](uint32_t& word, const float*) { all &= word != 0; });
        } while (!all);
        each([&](uint32_t&, float* at) { take(at); });
      }
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        if (!inside(u + e)) continue;
        float x = sum_at(place_of(u + e));
        if constexpr (S::kSplits > 1) {
          const float own = x;
          x = 0;
#pragma unroll
          for (int q = 0; q < S::kSplits; ++q) x += q == split ? own : arrived(words[e][q]);
        }
        finish(at(u + e), x, reads[e]);
      }
    }
  }

 private:
  template <int kSize, class F>
  static void bring(const F& feed, const Place& at, T* to) {
    const int first = at.first(), count = at.count();
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1 && s < count; ++s) feed.fetch(to + s * kSize, first + s);
    commit();
  }

  // Leaves the block's part of the tile's sums in its memory: there threads side by side finish elements side by side.
  static void multiply(const T* a, const T* b, const Place& at, uint32_t early, char* shared) {
    const FeedA feed_a(a, at.row);
    const FeedB feed_b(b, at.col);
    const int first = at.first(), count = at.count();
    T* const slots_a = reinterpret_cast<T*>(shared);
    T* const slots_b = slots_a + kSlots * kSizeA;
    const auto fetch = [&](int step) {
      feed_a.fetch(slots_a + step % S::kStages * kSizeA, first + step);
      feed_b.fetch(slots_b + step % S::kStages * kSizeB, first + step);
    };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp % S::kWarpRows * kWarpTall, warp_col = warp / S::kWarpRows % S::kWarpCols * kWarpWide;
    const int part = warp / (S::kWarpRows * S::kWarpCols);
    float c[kI][kJ][4] = {};
#pragma unroll 1
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (s < count && !(early & 1u)) feed_a.fetch(slots_a + s * kSizeA, first + s);
      if (s < count && !(early & 2u)) feed_b.fetch(slots_b + s * kSizeB, first + s);
      commit();
    }
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      if constexpr (kMost >= S::kStages)
        if (step + S::kStages - 1 < count) fetch(step + S::kStages - 1);
      commit();
      const T* from_a = slots_a + step % S::kStages * kSizeA;
      const T* from_b = slots_b + step % S::kStages * kSizeB;
#pragma unroll
      for (int d = 0; d < S::kDeep / F::kDeep / S::kParts; ++d) {
        const int k = (d * S::kParts + part) * F::kDeep;
        F now;
        now.load_a(from_a + (S::kTransposeA ? k * kStepA + warp_row : warp_row * kStepA + k), lane);
        now.load_b(from_b + (S::kTransposeB ? warp_col * kStepB + k : k * kStepB + warp_col), lane);
        now.multiply(c);
      }
    }
    wait_for<0>();
    __syncthreads();
    F::store(c, reinterpret_cast<float*>(shared) + part * kTile + warp_row * kLine + warp_col, kLine, lane);
    __syncthreads();
  }
};
}  // namespace lockstep
)";

std::optional<GemmStep> gemm_step(const GemmSpec& g, int processors, int64_t shared_bytes) {
  const bool half = g.dtype == DType::bf16 || g.dtype == DType::f16;
  if (!half && g.dtype != DType::f32) return {};
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.batch * g.m * g.n >= INT32_MAX) return {};
  if (g.lda >= INT32_MAX || g.ldb >= INT32_MAX || g.m >= INT32_MAX / 2 || g.k >= INT32_MAX / 2) return {};
  const int64_t lda = g.lda == GemmSpec::kDense ? (g.transpose_a ? g.m : g.k) : g.lda;
  const int64_t ldb = g.ldb == GemmSpec::kDense ? (g.transpose_b ? g.k : g.n) : g.ldb;
  const int64_t stride_a = g.stride_a == GemmSpec::kDense ? g.m * g.k : g.stride_a;
  const int64_t stride_b = g.stride_b == GemmSpec::kDense ? g.k * g.n : g.stride_b;
  if ((g.ldc != GemmSpec::kDense && g.ldc != g.n) || (g.stride_c != GemmSpec::kDense && g.stride_c != g.m * g.n))
    return {};
  const int64_t size = size_of(g.dtype), each = 16 / size;
  // Sixteen bytes at a time, where all rows begin at a multiple of that.
  const auto vector = [&](int64_t lead, int64_t cols, int64_t stride) {
    return lead % each == 0 && cols % each == 0 && stride % each == 0;
  };
  const std::optional<GemmChoice> choice = choose_tiles(g, processors, shared_bytes);
  if (!choice) return {};
  const auto& [tile, splits, deep, stages, tiles, shared] = *choice;
  const std::string members = fmt::format(
      "  using T = {};\n  static constexpr bool kTransposeA = {}, kTransposeB = {}, kVectorA = {}, kVectorB = {};\n"
      "  static constexpr int kM = {}, kN = {}, kK = {}, kLeadA = {}, kLeadB = {};\n"
      "  static constexpr int64_t kStrideA = {}, kStrideB = {};\n"
      "  static constexpr int kTall = {}, kWide = {}, kDeep = {}, kStages = {}, kWarpRows = {}, kWarpCols = {}, "
      "kParts = {}, kSplits = {}, kThreads = {};\n",
      memory_type(g.dtype), g.transpose_a, g.transpose_b, vector(lda, g.transpose_a ? g.m : g.k, stride_a),
      vector(ldb, g.transpose_b ? g.k : g.n, stride_b), g.m, g.n, g.k, lda, ldb, stride_a, stride_b, tile.tall,
      tile.wide, deep, stages, tile.rows, tile.cols, tile.parts, splits, kStepThreads);
  const std::string type =
      fmt::format("Product_{}", md5_hex(std::span(reinterpret_cast<const uint8_t*>(members.data()), members.size())));
  GemmStep out;
  out.prelude = fmt::format("#include \"gemm.h\"\nusing namespace lockstep;\nstruct {} {{\n{}}};\n", type, members);
  out.call = fmt::format("Gemm<{}>::run<Read>", type);
  out.bring_a = fmt::format("Gemm<{}>::bring_a", type);
  out.bring_b = fmt::format("Gemm<{}>::bring_b", type);
  out.crowded = tile.tall / tile.rows / 16 * (tile.wide / tile.cols / 8) > 4;  // see kEarly
  out.blocks = tiles * splits;
  if (splits > 1) out.partial_bytes = out.blocks * tile.tall * tile.wide * 4;
  out.shared_bytes = shared;
  return out;
}

}  // namespace lockstep
