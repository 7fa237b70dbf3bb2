#include "ops/cuda/row_product_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

const char* const kRowProductText = R"(#pragma once
#include "elements.h"
namespace lockstep {

// Rows of C = A x B. Where there are fewer columns than threads, several share a column's sum. For element i of C,
// read(i, r) reads what else is needed to r, and finish(i, x, r) makes something of it. B may be floats, which are
// rounded to T.
template <class T, class InB, int kThreads, int kRows, int kN, int kK, int kLeadA, int kLeadB, bool kTransposeB>
struct RowProduct {
  static constexpr int kParts = kN >= kThreads ? 1 : kThreads / kN < kK ? kThreads / kN : kK;
  static constexpr bool kByThreads = kParts <= 8;  // add up those of a column, each; otherwise warps do

  static float sum(const T* a, const InB* b, int n, int part) {
    float x = 0;
#pragma unroll 16
    for (int k = part; k < kK; k += kParts)
      x = __fmaf_rn(load(a[k]), element_of<T>(b[kTransposeB ? n * kLeadB + k : k * kLeadB + n]), x);
    return x;
  }

  template <class Read, class Reader, class Finish>
  static void run(uint32_t block, const T* a, const InB* b, char*, char* shared, const Reader& read,
                  const Finish& finish) {
    for (int row = block * kRows; row < int(block + 1) * kRows; ++row) {
      const T* const from = a + int64_t(row) * kLeadA;
      if constexpr (kParts == 1) {
#pragma unroll 4
        for (int n = threadIdx.x; n < kN; n += kThreads) {
          Read r;
          read(row * kN + n, r);
          finish(row * kN + n, sum(from, b, n, 0), r);
        }
      } else {
        float* const sums = reinterpret_cast<float*>(shared);
        const int part = threadIdx.x / kN, own = kByThreads ? threadIdx.x : threadIdx.x / 32;
        // What the first column of a thread needs is on its way while it is computed.
        Read r = {};
        const bool ends = own < kN && (kByThreads || threadIdx.x % 32 == 0);
        if (ends) read(row * kN + own, r);
        __syncthreads();  // the last row's have been read
        if (part < kParts) sums[threadIdx.x] = sum(from, b, threadIdx.x % kN, part);
        __syncthreads();
        if constexpr (kByThreads) {
          float x = 0;
          for (int p = 0; p < kParts; ++p) x += ends ? sums[p * kN + own] : 0;
          if (ends) finish(row * kN + own, x, r);
          continue;
        }
        for (int n = own; n < kN; n += kThreads / 32) {
          if (n != own && threadIdx.x % 32 == 0) read(row * kN + n, r);
          float x = 0;
          for (int p = threadIdx.x % 32; p < kParts; p += 32) x += sums[p * kN + n];
          for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
          if (threadIdx.x % 32 == 0) finish(row * kN + n, x, r);
        }
      }
    }
  }
};
}  // namespace lockstep
)";

std::optional<RowProduct> row_product(const GemmSpec& g) {
  constexpr int64_t kMostElements = 16384;  // of the second matrix, which every block reads
  constexpr int64_t kMostRows = 4;          // of a block, which reads it for each
  const bool real = g.dtype == DType::f32 || g.dtype == DType::bf16 || g.dtype == DType::f16;
  if (!real || g.batch != 1 || g.transpose_a || g.k < 1 || g.n < 1 || g.k * g.n > kMostElements) return {};
  if ((g.lda != GemmSpec::kDense && g.lda != g.k) || (g.ldc != GemmSpec::kDense && g.ldc != g.n)) return {};
  if (g.m * std::max(g.n, g.k) >= INT32_MAX || g.ldb >= INT32_MAX / std::max(g.n, g.k)) return {};
  return RowProduct{.most = g.m, .least = (g.m + kMostRows - 1) / kMostRows};
}

GemmStep row_product_step(const GemmSpec& g, int64_t count, bool rounded) {
  const int64_t ldb = g.ldb == GemmSpec::kDense ? (g.transpose_b ? g.k : g.n) : g.ldb;
  GemmStep out;
  out.prelude = "#include \"row_product.h\"\nusing namespace lockstep;\n";
  out.call = fmt::format("RowProduct<{}, {}, {}, {}, {}, {}, {}, {}, {}>::run<Read>", memory_type(g.dtype),
                         rounded ? "float" : memory_type(g.dtype), kStepThreads, g.m / count, g.n, g.k, g.k, ldb,
                         g.transpose_b);
  out.blocks = count;
  out.shared_bytes = kStepThreads * 4;
  return out;
}

}  // namespace lockstep
