#include "ops/cuda/row_product_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/cuda/cost_model.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

std::optional<RowProduct> row_product(const GemmSpec& g) {
  using cost_model::kRowProductElements, cost_model::kRowProductRows;
  const bool real = g.dtype == DType::f32 || g.dtype == DType::bf16 || g.dtype == DType::f16;
  if (!real || g.batch != 1 || g.transpose_a || g.k < 1 || g.n < 1 || g.k * g.n > kRowProductElements) return {};
  if ((g.lda != GemmSpec::kDense && g.lda != g.k) || (g.ldc != GemmSpec::kDense && g.ldc != g.n)) return {};
  if (g.m * std::max(g.n, g.k) >= INT32_MAX || g.ldb >= INT32_MAX / std::max(g.n, g.k)) return {};
  return RowProduct{.most = g.m, .least = (g.m + kRowProductRows - 1) / kRowProductRows};
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
