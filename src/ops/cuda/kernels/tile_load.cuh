// Tiles of the operands of a matrix product in shared memory: copied from global memory, or computed.
#pragma once
#include "elements.cuh"

namespace lockstep {

// Padding elements after each row of a tile in shared memory, so that a warp reads from all banks. Operands of type T
// are read in rows of 16 bytes; f32 operands that are rounded to T (In) are read in pairs. `deep_first`: the rows of
// the tile run across the sum, not along it.
template <class T, class In>
constexpr int pad_of(bool deep_first) {
  if (sizeof(In) > sizeof(T)) return deep_first ? 4 : 8;
  return deep_first ? 8 : 16 / int(sizeof(T));
}

// Copies tiles of one operand from global to shared memory, one step of the sum at a time; each thread copies kBytes at
// once. A tile is kDeep elements of the sum (of kSum in all) by kFree elements of the other dimension (of kWhole). Its
// rows in shared memory are kStep elements apart; those of the matrix, kLead. kDeepFirst: rows run across the sum.
// Elements outside the matrix become zero.
template <class T, int kThreads, int kFree, int kDeep, bool kDeepFirst, int kStep, int kWhole, int kSum, int kLead,
          int kBytes>
struct TileLoader {
  static constexpr int kEach = kBytes / int(sizeof(T)), kAcross = (kDeepFirst ? kFree : kDeep) / kEach;
  static constexpr int kAll = (kDeepFirst ? kDeep : kFree) * kAcross, kRounds = (kAll + kThreads - 1) / kThreads;
  static constexpr int kRowsAtOnce = kThreads / kAcross;
  static_assert(kThreads % kAcross == 0, "the threads copy whole rows at once");
  const T* base;
  const T* from;  // the thread's first element
  int row, col, free;

  TileLoader(const T* matrix, int its_free)
      : base(matrix), row(threadIdx.x / kAcross), col(threadIdx.x % kAcross * kEach), free(its_free) {
    from = matrix + (kDeepFirst ? int64_t(row) * kLead + free + col : int64_t(free + row) * kLead + col);
  }
  // Starts to copy the tile of a step to `to`; completes with commit() and wait_for().
  void fetch(T* to, int step) const {
    const T* const first = from + int64_t(step) * (kDeepFirst ? int64_t(kDeep) * kLead : kDeep);
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

// Computes an operand that is not stored: source(i, x) sets x[0] to x[3] to elements i to i + 3 of the matrix.
// Parameters as of TileLoader. The tile has all kHeld elements of the sum that the thread block needs.
template <class T, int kThreads, int kFree, int kHeld, bool kDeepFirst, int kStep, int kWhole, int kSum, int kLead>
struct ComputedTile {
  static constexpr int kAcross = (kDeepFirst ? kFree : kHeld) / 4, kAll = (kDeepFirst ? kHeld : kFree) * kAcross;
  static constexpr int kRounds = (kAll + kThreads - 1) / kThreads, kUnrolled = kRounds < 8 ? kRounds : 8;

  // Whether a thread's elements are all in the same columns.
  static constexpr bool kSameColumns = kThreads % kAcross == 0;
  static uint32_t row_of(int u) {
    return kSameColumns ? threadIdx.x / kAcross + u * (kThreads / kAcross) : (threadIdx.x + u * kThreads) / kAcross;
  }
  static uint32_t col_of(int u) {
    return (kSameColumns ? threadIdx.x % kAcross : (threadIdx.x + u * kThreads) % kAcross) * 4u;
  }
  static bool has(int u) {
    return (kAll % kThreads == 0 && kRounds % kUnrolled == 0) || threadIdx.x + u * kThreads < kAll;
  }

  // Computes the tile at `free` and at element `deep` of the sum.
  template <class Source>
  static void fill(const Source& source, T* to, int free, int deep) {
    constexpr uint32_t kRows = kDeepFirst ? kSum : kWhole, kCols = kDeepFirst ? kWhole : kSum;
    constexpr bool kAllRows = !kDeepFirst && kWhole % kFree == 0, kAllCols = kDeepFirst && kWhole % kFree == 0;
    const uint32_t row0 = kDeepFirst ? deep : free, col0 = kDeepFirst ? free : deep;
#pragma unroll 1
    for (int u = 0; u < kRounds; u += kUnrolled) {
      Four<T> x[kUnrolled];
#pragma unroll
      for (int e = 0; e < kUnrolled; ++e) {
        const uint32_t row = row0 + row_of(u + e), col = col0 + col_of(u + e);
        // Outside the matrix, it computes element 0: without a branch, the loads of all elements overlap.
        const bool in = has(u + e) && (kAllRows || row < kRows) && (kAllCols || col < kCols);
        source(in ? row * kLead + col : 0u, x[e].v);
        if (!in) x[e] = {};
      }
#pragma unroll
      for (int e = 0; e < kUnrolled; ++e)
        if (has(u + e)) *reinterpret_cast<Four<T>*>(to + row_of(u + e) * kStep + col_of(u + e)) = x[e];
    }
  }
  // Writes the tile's first `held` elements of the sum to the matrix `to`; thread blocks that compute the same tile
  // each write one of kShares shares.
  template <int kShares>
  static void write_back(const T* from, T* to, int free, int deep, int held, int share) {
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

// A source (ComputedTile) whose elements are also written to the matrix `to`.
template <class T, class F>
struct Written {
  F of;
  T* to;
  void operator()(uint32_t i, T (&x)[4]) const { of(i, x); }
};
template <class T, class F>
inline Written<T, F> written(const F& of, T* to) {
  return {of, to};
}

}  // namespace lockstep
