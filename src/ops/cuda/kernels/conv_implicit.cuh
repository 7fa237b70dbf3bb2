// Convolutions as implicit matrix products: the matrix of columns (im2col) exists only in shared memory, tile by tile.
#pragma once
#include <type_traits>

#include "conv_places.cuh"
#include "elements.cuh"

namespace lockstep {

enum class ConvMath { fma, tf32, half };

// S describes the product (conv_text.cc) and the convolution (conv_places.cuh): C is kRows x kCols, the sum has kDepth
// elements. A thread block of kThreads threads computes a tile of kBM x kBN elements, or its partial sum over
// kTilesEach of the kTiles steps of kDeep elements. T is the element of the operands in memory, Out that of C.
//
// In shared memory, a row of a tile is 16 words along the depth: a word is one number, or kP = 2 16-bit floats.
template <class S>
struct ConvImplicit {
  using T = typename S::T;
  using Out = typename S::Out;
  using I = typename S::I;
  using U = typename S::U;
  static constexpr bool kFma = S::kMath == ConvMath::fma;
  using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Word = std::conditional_t<kFma, Number, uint32_t>;
  static constexpr int kBM = S::kBM, kBN = S::kBN, kThreads = S::kThreads, kP = S::kP, kStride = S::kStride;

  // The word of an element, or of two.
  static Word word(T low, T high) {
    if constexpr (kFma)
      return load(low);
    else if constexpr (S::kMath == ConvMath::tf32)
      return nearest_tf32(low);
    else
      return Word(low.bits) | Word(high.bits) << 16;
  }

  template <int kV>
  struct alignas(kV * sizeof(T)) Pack {
    T v[kV];
  };
  template <int kCount>
  struct alignas(kCount * sizeof(Word)) Group {
    Word v[kCount];
  };
  template <int kCount>
  struct alignas(kCount * sizeof(Out)) Results {
    Out v[kCount];
  };

  // Moves a tile of an operand to shared memory through registers. A thread moves units of adjacent elements: kAlongK
  // says whether they are adjacent along the depth or along the rows; kV are loaded at once. Adjacent threads write
  // words in different banks.
  template <int kRows, bool kAlongK, int kV>
  struct Tile {
    static constexpr int kE = kAlongK ? (kV > kP ? kV : kP) : kP;  // elements of a unit along the depth
    static constexpr int kU = kAlongK ? 1 : kV;                    // rows of a unit
    static constexpr int kWide = kE / kP;                          // words of a unit along the depth
    static constexpr int kLoads = kAlongK ? kE / kV : kP;
    static constexpr int kAcross = 16 / kWide;
    static constexpr int kUnits = kRows / kU * kAcross;
    static constexpr int kEach = (kUnits + kThreads - 1) / kThreads;
    Pack<kV> held[kEach][kLoads];

    // place(row, k) is the position of an element, or -1 for zero.
    template <class Place>
    void load(const T* __restrict__ from, U row0, U k0, Place place) {
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int u = int(threadIdx.x) + e * kThreads;
        const U row = row0 + U(u / kAcross * kU), k = k0 + U(u % kAcross * kE);
#pragma unroll
        for (int l = 0; l < kLoads; ++l) {
          Pack<kV> p{};
          const I at = u < kUnits ? place(row, k + U(l * (kAlongK ? kV : 1))) : I(-1);
          if (at >= 0) p = *reinterpret_cast<const Pack<kV>*>(from + at);
          held[e][l] = p;
        }
      }
    }

    void store(Word (*to)[kStride]) const {
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int u = int(threadIdx.x) + e * kThreads;
        if (u >= kUnits) break;
        const int row = u / kAcross * kU, at = u % kAcross * kWide;
        if constexpr (kAlongK) {
          Group<kWide> words;
#pragma unroll
          for (int w = 0; w < kWide; ++w)
            words.v[w] =
                word(held[e][w * kP / kV].v[w * kP % kV], held[e][(w * kP + kP - 1) / kV].v[(w * kP + kP - 1) % kV]);
          *reinterpret_cast<Group<kWide>*>(&to[row][at]) = words;
        } else {
#pragma unroll
          for (int r = 0; r < kV; ++r) to[row + r][at] = word(held[e][0].v[r], held[e][kP - 1].v[r]);
        }
      }
    }
  };

  static float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  static double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }

  // The sums of a thread by fused multiply-add: rows ty, ty + 16, ... and columns tx, tx + 16, ... of the tile. each()
  // calls f(row, col, sums...) for adjacent elements.
  struct FmaSums {
    static constexpr int kTM = kBM / 16, kTN = kBN / 16, kQ = 16 / sizeof(Word);
    Word v[kTM][kTN] = {};
    void add(const Word (*a)[kStride], const Word (*b)[kStride]) {
      const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
      for (int k = 0; k < 16; k += kQ) {
        Group<kQ> x[kTM], y[kTN];
#pragma unroll
        for (int i = 0; i < kTM; ++i) x[i] = *reinterpret_cast<const Group<kQ>*>(&a[ty + 16 * i][k]);
#pragma unroll
        for (int j = 0; j < kTN; ++j) y[j] = *reinterpret_cast<const Group<kQ>*>(&b[tx + 16 * j][k]);
#pragma unroll
        for (int q = 0; q < kQ; ++q)
#pragma unroll
          for (int i = 0; i < kTM; ++i)
#pragma unroll
            for (int j = 0; j < kTN; ++j) v[i][j] = multiply_add(x[i].v[q], y[j].v[q], v[i][j]);
      }
    }
    template <class F>
    void each(F f) const {
      const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
      for (int i = 0; i < kTM; ++i)
#pragma unroll
        for (int j = 0; j < kTN; ++j) f(ty + 16 * i, tx + 16 * j, v[i][j]);
    }
  };

  // The same on the tensor cores: a warp computes kTM x kTN products of 16 x 8.
  struct MmaSums {
    static constexpr int kTM = kBM / S::kWarpRows / 16, kTN = kBN / S::kWarpCols / 8;
    float v[kTM][kTN][4] = {};
    static int row0() { return int(threadIdx.x) / 32 / S::kWarpCols * (kTM * 16) + int(threadIdx.x) % 32 / 4; }
    static int col0() { return int(threadIdx.x) / 32 % S::kWarpCols * (kTN * 8); }
    void add(const Word (*a)[kStride], const Word (*b)[kStride]) {
      const int g = int(threadIdx.x) % 32 / 4, t = int(threadIdx.x) % 4;
#pragma unroll
      for (int k = 0; k < 16; k += 8) {
        Word x[kTM][4], y[kTN][2];
#pragma unroll
        for (int i = 0; i < kTM; ++i) {
          const int row = row0() + 16 * i;
          x[i][0] = a[row][k + t];
          x[i][1] = a[row + 8][k + t];
          x[i][2] = a[row][k + t + 4];
          x[i][3] = a[row + 8][k + t + 4];
        }
#pragma unroll
        for (int j = 0; j < kTN; ++j) {
          const int col = col0() + 8 * j + g;
          y[j][0] = b[col][k + t];
          y[j][1] = b[col][k + t + 4];
        }
#pragma unroll
        for (int i = 0; i < kTM; ++i)
#pragma unroll
          for (int j = 0; j < kTN; ++j) multiply_one(T{}, v[i][j], x[i], y[j]);
      }
    }
    template <class F>
    void each(F f) const {
      const int t = int(threadIdx.x) % 4;
#pragma unroll
      for (int i = 0; i < kTM; ++i)
#pragma unroll
        for (int j = 0; j < kTN; ++j)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int row = row0() + 16 * i + 8 * h, col = col0() + 8 * j + 2 * t;
            if constexpr (S::kCols % 2 == 0) {
              f(row, col, v[i][j][2 * h], v[i][j][2 * h + 1]);
            } else {
              f(row, col, v[i][j][2 * h]);
              f(row, col + 1, v[i][j][2 * h + 1]);
            }
          }
    }
  };
  using Sums = std::conditional_t<kFma, FmaSums, MmaSums>;

  // The tile of this thread block. Tiles of the operands are double-buffered: the next ones are loaded into registers
  // while the current ones are multiplied.
  static void run(const T* __restrict__ x, const T* __restrict__ y, Out* __restrict__ out) {
    alignas(16) __shared__ Word as[2][kBM][kStride];
    alignas(16) __shared__ Word bs[2][kBN][kStride];
    U block = blockIdx.x;
    const U col0 = block % S::kColBlocks * kBN;
    block /= S::kColBlocks;
    const U row0 = block % S::kRowBlocks * kBM;
    block /= S::kRowBlocks;
    const U split = block % S::kSplits;
    const I group = I(block / S::kSplits);
    const auto in_a = [=](U row, U k) {
      return row < S::kRows && k < S::kDepth ? ConvPlaces<S>::a(row, k, group) : I(-1);
    };
    const auto in_b = [=](U col, U k) {
      return col < S::kCols && k < S::kDepth ? ConvPlaces<S>::b(col, k, group) : I(-1);
    };
    Tile<kBM, S::kAlongA, S::kVectorA> a;
    Tile<kBN, S::kAlongB, S::kVectorB> b;
    Sums sums;
    const U first = split * S::kTilesEach, end = first + S::kTilesEach < S::kTiles ? first + S::kTilesEach : S::kTiles;
    a.load(x, row0, first * S::kDeep, in_a);
    b.load(y, col0, first * S::kDeep, in_b);
    a.store(as[0]);
    b.store(bs[0]);
    __syncthreads();
    for (U tile = first; tile < end; ++tile) {
      const U now = (tile - first) % 2;
      if (tile + 1 < end) {
        a.load(x, row0, (tile + 1) * S::kDeep, in_a);
        b.load(y, col0, (tile + 1) * S::kDeep, in_b);
      }
      sums.add(as[now], bs[now]);
      if (tile + 1 < end) {
        a.store(as[1 - now]);
        b.store(bs[1 - now]);
      }
      __syncthreads();
    }
    Out* to = out + uint64_t(split) * S::kResults;
    sums.each([&](int r, int c, auto... sum) {
      const U row = row0 + U(r), col = col0 + U(c);
      using Some = Results<sizeof...(sum)>;
      if (row < S::kRows && col < S::kCols)
        *reinterpret_cast<Some*>(to + ConvPlaces<S>::c(row, col, group)) = Some{{Store<Out>::of(sum)...}};
    });
  }
};

}  // namespace lockstep
