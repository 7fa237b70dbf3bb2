// Matrix products of steps: the tensor cores' tile, with whatever is to be done with each element of the result.
#include "ops/cuda/gemm_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/md5.h"
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
template <class T, int kFree, int kDeep, bool kDeepFirst, int kStep, int kWhole, int kSum, int kLead, bool kVector>
struct Feed {
  static constexpr int kEach = kVector ? 16 / int(sizeof(T)) : 1, kAcross = (kDeepFirst ? kFree : kDeep) / kEach;
  static constexpr int kAll = (kDeepFirst ? kDeep : kFree) * kAcross, kRounds = (kAll + 255) / 256;
  const T* base;
  const T* from[kRounds];
  bool inside[kRounds];

  Feed(const T* matrix, int free) : base(matrix) {
#pragma unroll
    for (int u = 0; u < kRounds; ++u) {
      const int c = threadIdx.x + u * 256, r = c / kAcross, w = c % kAcross * kEach;
      const int at = free + (kDeepFirst ? w : r), deep = kDeepFirst ? r : w;
      inside[u] = at < kWhole;
      from[u] = matrix + (kDeepFirst ? int64_t(deep) * kLead + at : int64_t(at) * kLead + deep);
    }
  }
  void fetch(T* to, int step) const {
#pragma unroll
    for (int u = 0; u < kRounds; ++u) {
      const int c = threadIdx.x + u * 256, r = c / kAcross, w = c % kAcross * kEach;
      if (kAll % 256 != 0 && c >= kAll) continue;
      const bool in = inside[u] && (kSum % kDeep == 0 || step * kDeep + (kDeepFirst ? r : w) < kSum);
      const T* at = in ? from[u] + int64_t(step) * (kDeepFirst ? kDeep * kLead : kDeep) : base;
      if constexpr (kVector)
        copy_async<16>(to + r * kStep + w, at, in);
      else if constexpr (sizeof(T) == 4)
        copy_async<4>(to + r * kStep + w, at, in);
      else
        to[r * kStep + w] = in ? *at : T{};
    }
  }
};

inline uint32_t tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

// Two elements that follow each other in the sum, at the places i and j.
template <class T>
inline uint32_t pair(const T* from, int i, int j) {
  if (j == i + 1) return *reinterpret_cast<const uint32_t*>(from + i);
  return uint32_t(from[i].bits) | uint32_t(from[j].bits) << 16;
}

// A warp's part of a product, added up in registers.
template <class T>
struct Fragment;

template <>
struct Fragment<float> {
  static constexpr int kDeep = 8;
  // at(r, k): where element k of the sum of row or column r is.
  template <class At>
  static void load_a(uint32_t (&a)[4], const float* from, int g, int t, const At& at) {
    a[0] = tf32(from[at(g, t)]);
    a[1] = tf32(from[at(g + 8, t)]);
    a[2] = tf32(from[at(g, t + 4)]);
    a[3] = tf32(from[at(g + 8, t + 4)]);
  }
  template <class At>
  static void load_b(uint32_t (&b)[2], const float* from, int g, int t, const At& at) {
    b[0] = tf32(from[at(g, t)]);
    b[1] = tf32(from[at(g, t + 4)]);
  }
  static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

template <class T>
struct HalfFragment {
  static constexpr int kDeep = 16;
  template <class At>
  static void load_a(uint32_t (&a)[4], const T* from, int g, int t, const At& at) {
    a[0] = pair(from, at(g, 2 * t), at(g, 2 * t + 1));
    a[1] = pair(from, at(g + 8, 2 * t), at(g + 8, 2 * t + 1));
    a[2] = pair(from, at(g, 2 * t + 8), at(g, 2 * t + 9));
    a[3] = pair(from, at(g + 8, 2 * t + 8), at(g + 8, 2 * t + 9));
  }
  template <class At>
  static void load_b(uint32_t (&b)[2], const T* from, int g, int t, const At& at) {
    b[0] = pair(from, at(g, 2 * t), at(g, 2 * t + 1));
    b[1] = pair(from, at(g, 2 * t + 8), at(g, 2 * t + 9));
  }
};
template <>
struct Fragment<bf16> : HalfFragment<bf16> {
  static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <>
struct Fragment<f16> : HalfFragment<f16> {
  static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};

// One tile of C = A x B, batched. The warps of the block share the tile's rows, its columns, and the sum; what each of
// the latter added up is added in order. Then, for element i of the dense C, read(i, r) reads what else is needed to r,
// and finish(i, x, r) makes something of it.
template <class S>
struct Gemm {
  using T = typename S::T;
  using F = Fragment<T>;
  static constexpr int kPadK = 16 / int(sizeof(T)), kPad = 8;  // so that a warp reads from all banks
  static constexpr int kStepA = S::kTransposeA ? S::kTall + kPad : S::kDeep + kPadK;
  static constexpr int kStepB = S::kTransposeB ? S::kDeep + kPadK : S::kWide + kPad;
  static constexpr int kSizeA = (S::kTransposeA ? S::kDeep : S::kTall) * kStepA;
  static constexpr int kSizeB = (S::kTransposeB ? S::kWide : S::kDeep) * kStepB;
  static constexpr int kWarpTall = S::kTall / S::kWarpRows, kWarpWide = S::kWide / S::kWarpCols;
  static constexpr int kI = kWarpTall / 16, kJ = kWarpWide / 8;
  static constexpr int kSteps = (S::kK + S::kDeep - 1) / S::kDeep;

  template <class Read, class Reader, class Finish>
  static void run(uint32_t block, const T* a, const T* b, char* shared, const Reader& read, const Finish& finish) {
    constexpr int kDown = (S::kM + S::kTall - 1) / S::kTall, kAcross = (S::kN + S::kWide - 1) / S::kWide;
    const int batch = block / (kDown * kAcross), tile = block % (kDown * kAcross);
    const int row = tile % kDown * S::kTall, col = tile / kDown * S::kWide;
    const Feed<T, S::kTall, S::kDeep, S::kTransposeA, kStepA, S::kM, S::kK, S::kLeadA, S::kVectorA> feed_a(
        a + int64_t(batch) * S::kStrideA, row);
    const Feed<T, S::kWide, S::kDeep, !S::kTransposeB, kStepB, S::kN, S::kK, S::kLeadB, S::kVectorB> feed_b(
        b + int64_t(batch) * S::kStrideB, col);
    T* const slots = reinterpret_cast<T*>(shared);
    const auto fetch = [&](int step) {
      T* const to = slots + step % S::kStages * (kSizeA + kSizeB);
      feed_a.fetch(to, step);
      feed_b.fetch(to + kSizeA, step);
    };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp_row = warp % S::kWarpRows * kWarpTall, warp_col = warp / S::kWarpRows % S::kWarpCols * kWarpWide;
    const int part = warp / (S::kWarpRows * S::kWarpCols);
    float c[kI][kJ][4] = {};
#pragma unroll
    for (int s = 0; s < S::kStages - 1; ++s) {
      if (s < kSteps) fetch(s);
      commit();
    }
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      wait_for<S::kStages - 2>();
      __syncthreads();
      if (step + S::kStages - 1 < kSteps) fetch(step + S::kStages - 1);
      commit();
      const T* from_a = slots + step % S::kStages * (kSizeA + kSizeB);
      const T* from_b = from_a + kSizeA;
#pragma unroll
      for (int d = 0; d < S::kDeep / F::kDeep / S::kParts; ++d) {
        const int k = (d * S::kParts + part) * F::kDeep;
        uint32_t fa[kI][4], fb[kJ][2];
#pragma unroll
        for (int i = 0; i < kI; ++i)
          F::load_a(fa[i], from_a, g, t, [&](int r, int e) {
            return S::kTransposeA ? (k + e) * kStepA + warp_row + i * 16 + r
                                  : (warp_row + i * 16 + r) * kStepA + k + e;
          });
#pragma unroll
        for (int j = 0; j < kJ; ++j)
          F::load_b(fb[j], from_b, g, t, [&](int r, int e) {
            return S::kTransposeB ? (warp_col + j * 8 + r) * kStepB + k + e : (k + e) * kStepB + warp_col + j * 8 + r;
          });
#pragma unroll
        for (int i = 0; i < kI; ++i)
#pragma unroll
          for (int j = 0; j < kJ; ++j) F::multiply(c[i][j], fa[i], fb[j]);
      }
    }
    wait_for<0>();
    // The tile goes through the block's memory, so that threads side by side finish elements side by side.
    constexpr int kLine = S::kWide + 4;
    float* const sums = reinterpret_cast<float*>(shared);
#pragma unroll
    for (int p = 0; p < S::kParts; ++p) {
      __syncthreads();
      if (part != p) continue;
#pragma unroll
      for (int i = 0; i < kI; ++i)
#pragma unroll
        for (int j = 0; j < kJ; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = sums[(warp_row + i * 16 + g + e / 2 * 8) * kLine + warp_col + j * 8 + 2 * t + e % 2];
            sum = p == 0 ? c[i][j][e] : sum + c[i][j][e];
          }
    }
    __syncthreads();
    constexpr int kOwn = S::kTall * S::kWide / 256, kGroup = kOwn < 4 ? kOwn : 4;
#pragma unroll 1
    for (int u = 0; u < kOwn; u += kGroup) {
      Read reads[kGroup];
      uint32_t at[kGroup];
      bool in[kGroup];
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        const int place = threadIdx.x + (u + e) * 256, r = row + place / S::kWide, n = col + place % S::kWide;
        in[e] = r < S::kM && n < S::kN;
        at[e] = (uint32_t(batch) * S::kM + r) * S::kN + n;
        if (in[e]) read(at[e], reads[e]);
      }
#pragma unroll
      for (int e = 0; e < kGroup; ++e) {
        const int place = threadIdx.x + (u + e) * 256;
        if (in[e]) finish(at[e], sums[place / S::kWide * kLine + place % S::kWide], reads[e]);
      }
    }
  }
};
}  // namespace lockstep
)";

namespace {

// How a tile is shared among the eight warps of a block.
struct Tiling {
  int64_t tall, wide;
  int rows, cols, parts;
};
constexpr Tiling kTiles[] = {{128, 64, 4, 2, 1}, {64, 64, 4, 2, 1}, {64, 32, 4, 2, 1},
                             {32, 32, 2, 2, 2},  {16, 32, 1, 4, 2}, {16, 16, 1, 2, 4}};

int64_t tiles_of(const GemmSpec& g, const Tiling& tile) {
  return (g.m + tile.tall - 1) / tile.tall * ((g.n + tile.wide - 1) / tile.wide) * g.batch;
}

// The largest that keeps most of the GPU busy.
Tiling tile_for(const GemmSpec& g, int processors) {
  for (const Tiling& tile : kTiles) {
    if (tile.wide > 16 && g.n <= tile.wide / 2) continue;
    if (tiles_of(g, tile) * 10 >= int64_t{processors} * 8) return tile;
  }
  return g.n <= 16 ? kTiles[5] : kTiles[3];
}

}  // namespace

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
  const Tiling tile = tile_for(g, processors);
  // Few steps of much each: a step costs the block a meeting.
  const int64_t deep = (half ? 64 : 32) * (g.k >= 512 ? 2 : 1);
  const int64_t step_a = g.transpose_a ? tile.tall + 8 : deep + each;
  const int64_t step_b = g.transpose_b ? deep + each : tile.wide + 8;
  const int64_t stage =
      ((g.transpose_a ? deep : tile.tall) * step_a + (g.transpose_b ? tile.wide : deep) * step_b) * size;
  // As many on their way as there is room for: what a step waits for is the GPU's second cache.
  const int64_t most = std::clamp<int64_t>(shared_bytes / stage, 2, 6);
  const int64_t stages = std::clamp<int64_t>((g.k + deep - 1) / deep + 1, 2, most);
  const std::string members = fmt::format(
      "  using T = {};\n  static constexpr bool kTransposeA = {}, kTransposeB = {}, kVectorA = {}, kVectorB = {};\n"
      "  static constexpr int kM = {}, kN = {}, kK = {}, kLeadA = {}, kLeadB = {};\n"
      "  static constexpr int64_t kStrideA = {}, kStrideB = {};\n"
      "  static constexpr int kTall = {}, kWide = {}, kDeep = {}, kStages = {}, kWarpRows = {}, kWarpCols = {}, "
      "kParts = {};\n",
      memory_type(g.dtype), g.transpose_a, g.transpose_b, vector(lda, g.transpose_a ? g.m : g.k, stride_a),
      vector(ldb, g.transpose_b ? g.k : g.n, stride_b), g.m, g.n, g.k, lda, ldb, stride_a, stride_b, tile.tall,
      tile.wide, deep, stages, tile.rows, tile.cols, tile.parts);
  const std::string type =
      fmt::format("Product_{}", md5_hex(std::span(reinterpret_cast<const uint8_t*>(members.data()), members.size())));
  GemmStep out;
  out.prelude = fmt::format("#include \"gemm.h\"\nusing namespace lockstep;\nstruct {} {{\n{}}};\n", type, members);
  out.call = fmt::format("Gemm<{}>::run<Read>", type);
  out.blocks = tiles_of(g, tile);
  out.shared_bytes = std::max<int64_t>(stage * stages, tile.tall * (tile.wide + 4) * 4);
  return out;
}

}  // namespace lockstep
