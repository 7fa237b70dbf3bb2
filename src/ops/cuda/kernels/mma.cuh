// Fragments: what a warp loads from tiles in shared memory and multiplies on the tensor cores.
#pragma once
#include "elements.cuh"

namespace lockstep {

// Prepares an f32 for the tensor cores, which read its upper 19 bits (TF32) and ignore the rest. The factor moves the
// truncated value to within 0.7 ulp (of TF32) of x, above as often as below, and does not change x if its lower bits are
// zero. Rounding to nearest takes eight times as long.
inline uint32_t tf32(uint32_t x) { return __float_as_uint(__uint_as_float(x) * 1.0003384f); }

// Loads or stores kCount consecutive floats, aligned to their total size.
template <int kCount>
inline void load_floats(uint32_t* to, const float* from) {
  if constexpr (kCount == 4) {
    const uint4 x = *reinterpret_cast<const uint4*>(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  } else if constexpr (kCount == 2) {
    const uint2 x = *reinterpret_cast<const uint2*>(from);
    to[0] = x.x, to[1] = x.y;
  } else {
    static_assert(kCount == 1, "1, 2 or 4 floats");
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

// The fragments of A and B of one warp: kTall x 16 rows by kWide x 8 columns, kDeep elements of the sum. An operand that
// is f32 in shared memory (InA, InB) is rounded to T.
//
// If a stored row of f32 runs across the sum, adjacent floats belong to different rows (columns) of the fragments. A
// thread then loads them together (kSpreadA, kSpreadB), and row() and col() say where the result's elements are.
template <class T, int kTall, int kWide, bool kTransposeA, bool kTransposeB, int kStepA, int kStepB, class InA = T,
          class InB = T>
struct Fragments {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kDeep = kFloat ? 8 : 16, kEach = 16 / int(sizeof(T));
  static constexpr bool kRoundA = sizeof(InA) > sizeof(T), kRoundB = sizeof(InB) > sizeof(T);
  static constexpr bool kSpreadA = sizeof(InA) == 4 && kTransposeA, kSpreadB = sizeof(InB) == 4 && !kTransposeB;
  static constexpr bool kPairB = kWide % 2 == 0;  // B is loaded 16 columns at a time
  uint32_t a[kTall][4], b[kWide][2];

  // Adjacent floats that a thread loads together, at most four. Its next ones are eight such groups further on.
  static constexpr int kSideA = 2 * kTall < 4 ? 2 * kTall : 4, kSideB = kWide < 4 ? kWide : 4;

  // The row of the tile that is row r of fragment i, and the column that is column n of fragment j.
  static int row(int i, int r) {
    const int e = 2 * i + r / 8;  // which of the floats that thread r % 8 loads
    return kSpreadA ? e / kSideA * 8 * kSideA + r % 8 * kSideA + e % kSideA : i * 16 + r;
  }
  static int col(int j, int n) { return kSpreadB ? j / kSideB * 8 * kSideB + n * kSideB + j % kSideB : j * 8 + n; }

  // A thread holds four 16-bit elements of the sum of a row or column, two per word. Returns the offset of element `e`
  // from the thread's first.
  static constexpr int deep_of(int e) { return e % 2 + e / 2 * 8; }

  // The offset of a thread's first element in the warp's part of the tile. The offsets of its other elements from that
  // one are constants.
  static int lane_offset_a(int lane) {
    if (kSpreadA) return (kRoundA ? lane % 4 * 2 : lane % 4) * kStepA + lane / 4 * kSideA;
    if (kRoundA) return lane / 4 * kStepA + lane % 4 * 2;
    if (kTransposeA) return (lane % 8 + lane / 16 * 8) * kStepA + lane / 8 % 2 * 8;
    return lane % 16 * kStepA + lane / 16 * kEach;
  }
  static int lane_offset_b(int lane) {
    if (kSpreadB) return (kRoundB ? lane % 4 * 2 : lane % 4) * kStepB + lane / 4 * kSideB;
    if (kRoundB) return lane / 4 * kStepB + lane % 4 * 2;
    if (kTransposeB) return (lane % 8 + (kPairB ? lane / 16 * 8 : 0)) * kStepB + lane / 8 % 2 * kEach;
    return (lane % 8 + lane / 8 % 2 * 8) * kStepB + (kPairB ? lane / 16 * 8 : 0);
  }

  // Load the fragments of one step of the sum. `from`: the thread's first element (lane_offset_a, lane_offset_b).
  void load_a(const InA* from) {
    if constexpr (kRoundA && kSpreadA) {
      uint32_t x[4][2 * kTall];
#pragma unroll
      for (int u = 0; u < 4; ++u)
#pragma unroll
        for (int e = 0; e < 2 * kTall; e += kSideA) load_floats<kSideA>(x[u] + e, from + deep_of(u) * kStepA + e * 8);
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
        for (int e = 0; e < 2 * kTall; e += kSideA) load_floats<kSideA>(x[half] + e, from + half * 4 * kStepA + e * 8);
#pragma unroll
      for (int i = 0; i < kTall; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = x[e / 2][2 * i + e % 2];
    } else {
#pragma unroll
      for (int i = 0; i < kTall; ++i) load_matrices<kTransposeA, 4>(a[i], from + i * 16 * (kTransposeA ? 1 : kStepA));
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
        for (int j = 0; j < kWide; j += kSideB) load_floats<kSideB>(x[u] + j, from + deep_of(u) * kStepB + j * 8);
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
        for (int j = 0; j < kWide; j += kSideB) load_floats<kSideB>(x[half] + j, from + half * 4 * kStepB + j * 8);
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
  // Stores the warp's results to its part of a tile whose rows are `line` floats apart.
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
  // c += a b.
  void multiply(float (&c)[kTall][kWide][4]) const {
#pragma unroll
    for (int i = 0; i < kTall; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j) multiply_one(T{}, c[i][j], a[i], b[j]);
  }
};

}  // namespace lockstep
