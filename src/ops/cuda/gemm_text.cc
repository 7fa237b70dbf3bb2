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
inline void load_floats(uint32_t (&to)[kCount], const float* from) {
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

// What a warp multiplies at a time: kTall x 16 rows by kWide x 8 columns. Which row or column of the tile that is
// depends on how the tile lies in memory: where the sum's elements do not follow each other there, floats of several
// rows or columns do, and a thread takes those.
template <class T, int kTall, int kWide, bool kTransposeA, bool kTransposeB, int kStepA, int kStepB>
struct Fragments {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kDeep = kFloat ? 8 : 16, kEach = 16 / int(sizeof(T));
  static constexpr bool kSpreadA = kFloat && kTransposeA, kSpreadB = kFloat && !kTransposeB;
  uint32_t a[kTall][4], b[kWide][2];

  static int row(int i, int r) { return kSpreadA ? r % 8 * 2 * kTall + 2 * i + r / 8 : i * 16 + r; }
  static int col(int j, int n) { return kSpreadB ? n * kWide + j : j * 8 + n; }

  // `from` is where the warp's part of the tile begins, at the step of the sum that is due.
  void load_a(const T* from, int lane) {
    if constexpr (kSpreadA) {
      uint32_t x[2][2 * kTall];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        load_floats(x[half], from + (lane % 4 + half * 4) * kStepA + lane / 4 * 2 * kTall);
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
        for (int e = 0; e < 4; ++e) a[i][e] = tf32(__uint_as_float(a[i][e]));
    }
  }
  void load_b(const T* from, int lane) {
    if constexpr (kSpreadB) {
      uint32_t x[2][kWide];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        load_floats(x[half], from + (lane % 4 + half * 4) * kStepB + lane / 4 * kWide);
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
    if constexpr (kFloat) {
#pragma unroll
      for (int j = 0; j < kWide; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) b[j][e] = tf32(__uint_as_float(b[j][e]));
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
  int out = own < 8 ? own : 8;
  while (out > 4 && out * bytes > 64) out /= 2;
  return out;
}

// One tile of C = A x B, batched. The warps of the block share the tile's rows, its columns, and the sum; what each of
// the latter added up is added in order. Then, for element i of the dense C, read(i, r) reads what else is needed to r,
// and finish(i, x, r) makes something of it.
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
#pragma unroll 1
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
        F now;
        now.load_a(from_a + (S::kTransposeA ? k * kStepA + warp_row : warp_row * kStepA + k), lane);
        now.load_b(from_b + (S::kTransposeB ? warp_col * kStepB + k : k * kStepB + warp_col), lane);
        now.multiply(c);
      }
    }
    wait_for<0>();
    // The tile goes through the block's memory, so that threads side by side finish elements side by side.
    constexpr int kLine = S::kWide + 4;
    float* const sums = reinterpret_cast<float*>(shared);
#pragma unroll 1
    for (int p = 0; p < S::kParts; ++p) {
      __syncthreads();
      if (part != p) continue;
#pragma unroll
      for (int i = 0; i < kI; ++i)
#pragma unroll
        for (int j = 0; j < kJ; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum =
                sums[(warp_row + F::row(i, g + e / 2 * 8)) * kLine + warp_col + F::col(j, 2 * t + e % 2)];
            sum = p == 0 ? c[i][j][e] : sum + c[i][j][e];
          }
    }
    __syncthreads();
    constexpr int kOwn = S::kTall * S::kWide / 256, kGroup = group_of(kOwn, int(sizeof(Read)));
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
