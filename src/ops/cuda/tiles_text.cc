// What matrix products of steps are made of: tiles of the operands on their way to a block's memory, and what the
// tensor cores multiply of them.
#include "ops/cuda/gemm_text.h"

namespace lockstep {

const char* const kTilesText = R"(#pragma once
#include "elements.h"
namespace lockstep {

// Elements behind each row of a tile, whose rows are those of the sum (kDeepFirst) or go along it, so that a warp
// reads from all banks: of what is multiplied as it is, rows of sixteen bytes; of floats that are rounded, the pairs
// of which.
template <class T, class In>
constexpr int pad_of(bool deep_first) {
  if (sizeof(In) > sizeof(T)) return deep_first ? 4 : 8;
  return deep_first ? 8 : 16 / int(sizeof(T));
}

// What a thread brings of the tiles of one operand, step by step along the sum, kBytes at a time. kFree is the tile's
// extent along the other dimension, of kWhole; kDeepFirst: the stored rows are those of the sum.
template <class T, int kThreads, int kFree, int kDeep, bool kDeepFirst, int kStep, int kWhole, int kSum, int kLead,
          int kBytes>
struct Feed {
  static constexpr int kEach = kBytes / int(sizeof(T)), kAcross = (kDeepFirst ? kFree : kDeep) / kEach;
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
      if constexpr (kBytes >= 4)
        copy_async<kBytes>(place + u * kRowsAtOnce * kStep, at, in);
      else
        place[u * kRowsAtOnce * kStep] = in ? *at : T{};
    }
  }
};

// All that a block needs of an operand that is computed and not read: source(i, x) sets x[0] to x[3] to elements i to
// i + 3 of the stored matrix. As Feed, of kHeld steps of the sum at once.
template <class T, int kThreads, int kFree, int kHeld, bool kDeepFirst, int kStep, int kWhole, int kSum, int kLead>
struct Hold {
  static constexpr int kAcross = (kDeepFirst ? kFree : kHeld) / 4, kAll = (kDeepFirst ? kHeld : kFree) * kAcross;
  static constexpr int kRounds = (kAll + kThreads - 1) / kThreads, kTogether = kRounds < 8 ? kRounds : 8;

  // A thread's elements are below each other, where whole rows are its block's at a time.
  static constexpr bool kBelow = kThreads % kAcross == 0;
  static uint32_t row_of(int u) {
    return kBelow ? threadIdx.x / kAcross + u * (kThreads / kAcross) : (threadIdx.x + u * kThreads) / kAcross;
  }
  static uint32_t col_of(int u) {
    return (kBelow ? threadIdx.x % kAcross : (threadIdx.x + u * kThreads) % kAcross) * 4u;
  }
  static bool has(int u) {
    return (kAll % kThreads == 0 && kRounds % kTogether == 0) || threadIdx.x + u * kThreads < kAll;
  }

  template <class Source>
  static void fill(const Source& source, T* to, int free, int deep) {
    constexpr uint32_t kRows = kDeepFirst ? kSum : kWhole, kCols = kDeepFirst ? kWhole : kSum;
    constexpr bool kAllRows = !kDeepFirst && kWhole % kFree == 0, kAllCols = kDeepFirst && kWhole % kFree == 0;
    const uint32_t row0 = kDeepFirst ? deep : free, col0 = kDeepFirst ? free : deep;
#pragma unroll 1
    for (int u = 0; u < kRounds; u += kTogether) {
      Four<T> x[kTogether];
#pragma unroll
      for (int e = 0; e < kTogether; ++e) {
        const uint32_t row = row0 + row_of(u + e), col = col0 + col_of(u + e);
        // Of another element, where there is none: without a branch all are on their way together.
        const bool in = has(u + e) && (kAllRows || row < kRows) && (kAllCols || col < kCols);
        source(in ? row * kLead + col : 0u, x[e].v);
        if (!in) x[e] = {};
      }
#pragma unroll
      for (int e = 0; e < kTogether; ++e)
        if (has(u + e)) *reinterpret_cast<Four<T>*>(to + row_of(u + e) * kStep + col_of(u + e)) = x[e];
    }
  }
  // What was computed, of `held` elements of the sum, to its place in the whole matrix: one of kShares shares of it.
  template <int kShares>
  static void put(const T* from, T* to, int free, int deep, int held, int share) {
    constexpr int kEach = (kAll + kShares - 1) / kShares;
    const int end = (share + 1) * kEach < kAll ? (share + 1) * kEach : kAll;
#pragma unroll 1
    for (int at = share * kEach + threadIdx.x; at < end; at += kThreads) {
      const int r = at / kAcross, c = at % kAcross * 4;
      const int row = r + (kDeepFirst ? deep : free), col = c + (kDeepFirst ? free : deep);
      if ((kDeepFirst ? r : c) < held && row < (kDeepFirst ? kSum : kWhole) && col < (kDeepFirst ? kWhole : kSum))
        *reinterpret_cast<Four<T>*>(to + uint32_t(row) * kLead + col) =
            *reinterpret_cast<const Four<T>*>(from + r * kStep + c);
    }
  }
};

// Some columns of a matrix of kWidth columns in the block's memory, its first element at (row, col), by the numbers
// that elements have in the whole matrix.
template <class T, int kWidth, int kCols>
struct Near {
  const T* at;
  uint32_t row, col;
  const T& operator[](uint32_t i) const { return at[(i / kWidth - row) * kCols + (i % kWidth - col)]; }
};

// A source whose elements are written to `to` besides.
template <class T, class F>
struct Written {
  F of;
  T* to;
  void operator()(uint32_t i, T (&x)[4]) const { of(i, x); }
};
template <class T, class F>
inline Written<T, F> written(const F& of, T* to) { return {of, to}; }

// The tensor cores take the upper 19 bits of a float and leave the rest. A little more than the float is within 0.7 of
// the last of those bits of it, on average as often above as below, and is the same where the rest is zero; to round to
// the nearest takes eight times as long.
inline uint32_t tf32(uint32_t x) { return __float_as_uint(__uint_as_float(x) * 1.0003384f); }

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
// rows or columns do, and a thread takes those. Operands that are floats there, InA or InB, are rounded to T.
template <class T, int kTall, int kWide, bool kTransposeA, bool kTransposeB, int kStepA, int kStepB, class InA = T,
          class InB = T>
struct Fragments {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kDeep = kFloat ? 8 : 16, kEach = 16 / int(sizeof(T));
  static constexpr bool kRoundA = sizeof(InA) > sizeof(T), kRoundB = sizeof(InB) > sizeof(T);
  static constexpr bool kSpreadA = sizeof(InA) == 4 && kTransposeA, kSpreadB = sizeof(InB) == 4 && !kTransposeB;
  static constexpr bool kPairB = kWide % 2 == 0;  // columns are read sixteen at a time
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

  // The element of the sum that is half `e` of a word, of four that a thread has of a row or column, where two make
  // one, behind the thread's first.
  static constexpr int deep_of(int e) { return e % 2 + e / 2 * 8; }

  // A thread's first element, behind that of the warp's part of a tile. All else that it reads is so far behind its
  // first as the compiler knows.
  static int own_a(int lane) {
    if (kSpreadA) return (kRoundA ? lane % 4 * 2 : lane % 4) * kStepA + lane / 4 * kSideA;
    if (kRoundA) return lane / 4 * kStepA + lane % 4 * 2;
    if (kTransposeA) return (lane % 8 + lane / 16 * 8) * kStepA + lane / 8 % 2 * 8;
    return lane % 16 * kStepA + lane / 16 * kEach;
  }
  static int own_b(int lane) {
    if (kSpreadB) return (kRoundB ? lane % 4 * 2 : lane % 4) * kStepB + lane / 4 * kSideB;
    if (kRoundB) return lane / 4 * kStepB + lane % 4 * 2;
    if (kTransposeB) return (lane % 8 + (kPairB ? lane / 16 * 8 : 0)) * kStepB + lane / 8 % 2 * kEach;
    return (lane % 8 + lane / 8 % 2 * 8) * kStepB + (kPairB ? lane / 16 * 8 : 0);
  }

  // `from` is the thread's first element at the step of the sum that is due.
  void load_a(const InA* from) {
    if constexpr (kRoundA && kSpreadA) {
      uint32_t x[4][2 * kTall];
#pragma unroll
      for (int u = 0; u < 4; ++u)
#pragma unroll
        for (int e = 0; e < 2 * kTall; e += kSideA)
          load_floats<kSideA>(x[u] + e, from + deep_of(u) * kStepA + e * 8);
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          a[i][e] = rounded_pair(T{}, x[e / 2 * 2][2 * i + e % 2], x[e / 2 * 2 + 1][2 * i + e % 2]);
    } else if constexpr (kRoundA) {
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          uint32_t x[2];
          load_floats<2>(x, from + (i * 16 + e % 2 * 8) * kStepA + deep_of(e / 2 * 2));
          a[i][e] = rounded_pair(T{}, x[0], x[1]);
        }
    } else if constexpr (kSpreadA) {
      uint32_t x[2][2 * kTall];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2 * kTall; e += kSideA)
          load_floats<kSideA>(x[half] + e, from + half * 4 * kStepA + e * 8);
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = x[e / 2][2 * i + e % 2];
    } else {
#pragma unroll
      for (int i = 0; i < kTall; ++i)
        load_matrices<kTransposeA, 4>(a[i], from + i * 16 * (kTransposeA ? 1 : kStepA));
    }
    if constexpr (kFloat) {
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = tf32(a[i][e]);
    }
  }
  template <bool kRound = true>
  void load_b(const InB* from) {
    if constexpr (kRoundB && kSpreadB) {
      uint32_t x[4][kWide];
#pragma unroll
      for (int u = 0; u < 4; ++u)
#pragma unroll
        for (int j = 0; j < kWide; j += kSideB)
          load_floats<kSideB>(x[u] + j, from + deep_of(u) * kStepB + j * 8);
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) b[j][e] = rounded_pair(T{}, x[2 * e][j], x[2 * e + 1][j]);
    } else if constexpr (kRoundB) {
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          uint32_t x[2];
          load_floats<2>(x, from + j * 8 * kStepB + deep_of(2 * e));
          b[j][e] = rounded_pair(T{}, x[0], x[1]);
        }
    } else if constexpr (kSpreadB) {
      uint32_t x[2][kWide];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kWide; j += kSideB)
          load_floats<kSideB>(x[half] + j, from + half * 4 * kStepB + j * 8);
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) b[j][e] = x[e][j];
    } else {
      constexpr int kAtOnce = kPairB ? 2 : 1;
#pragma unroll
      for (int j = 0; j < kWide; j += kAtOnce)
        load_matrices<!kTransposeB, 2 * kAtOnce>(b[j], from + j * 8 * (kTransposeB ? kStepB : 1));
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
};
}  // namespace lockstep
)";

}  // namespace lockstep
