#include "ops/cuda/row_product_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

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
  out.prelude = "#include \"row_product.cuh\"\nusing namespace lockstep;\n";
  out.call = fmt::format("RowProduct<{}, {}, {}, {}, {}, {}, {}, {}, {}>::run<Read>", memory_type(g.dtype),
                         rounded ? "float" : memory_type(g.dtype), kStepThreads, g.m / count, g.n, g.k, g.k, ldb,
                         g.transpose_b);
  out.blocks = count;
  out.shared_bytes = kStepThreads * 4;
  return out;
}

}  // namespace lockstep
