// Matrix products of steps: the tensor cores' tile, with whatever is to be done with each element of the result.
#include "ops/cuda/gemm_text.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "ops/cuda/gemm_choice.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

std::optional<GemmStep> gemm_step(const GemmSpec& g, int processors, int64_t shared_bytes, GemmSources sources,
                                  int64_t exchanged) {
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
  if (!half && (sources.a == GemmOperand::rounded || sources.b == GemmOperand::rounded)) return {};
  const auto type_of = [&](GemmOperand how) { return how == GemmOperand::rounded ? DType::f32 : g.dtype; };
  // Sixteen bytes at a time, or four, where all rows begin at a multiple of that.
  const auto at_once = [&](GemmOperand how, int64_t lead, int64_t cols, int64_t stride) {
    const int64_t size = size_of(type_of(how));
    for (const int64_t bytes : {16, 4})
      if (lead * size % bytes == 0 && cols * size % bytes == 0 && stride * size % bytes == 0) return bytes;
    return size;
  };
  // Four at a time, of a whole matrix.
  const auto computable = [&](int64_t lead, int64_t rows, int64_t cols) {
    return g.batch == 1 && lead == cols && cols % 4 == 0 && rows * cols < INT32_MAX;
  };
  const bool computed_a = sources.a == GemmOperand::computed, computed_b = sources.b == GemmOperand::computed;
  if (computed_a && !computable(lda, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k)) return {};
  if (computed_b && !computable(ldb, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n)) return {};
  const std::optional<GemmChoice> choice = choose_tiles(g, processors, shared_bytes, sources, exchanged);
  if (!choice) return {};
  const auto& [tile, splits, deep, stages, tiles, shared, nanoseconds] = *choice;
  const bool register_bound = tile.tall / tile.rows / 16 * (tile.wide / tile.cols / 8) > 4;  // see kEarly
  if (computed_a || computed_b) {
    // To compute them takes registers, too, which is worth it where nothing else is waited for; and where they take the
    // memory of larger tiles, they are better read.
    const std::optional<GemmChoice> plain = choose_tiles(
        g, processors, shared_bytes,
        {computed_a ? GemmOperand::read : sources.a, computed_b ? GemmOperand::read : sources.b}, exchanged);
    const bool same = plain->tile.tall == tile.tall && plain->tile.wide == tile.wide && plain->splits == splits;
    constexpr double kPhase = 2000;  // nanoseconds of one, and of meeting after it
    if (sources.first ? nanoseconds > plain->nanoseconds + kPhase : register_bound || !same) return {};
  }
  // Consecutive elements that a thread finishes in one call.
  int vector_width = 4;
  while (vector_width > 1 &&
         (g.n % vector_width != 0 || tile.tall * tile.wide / splits % (vector_width * kStepThreads) != 0))
    vector_width /= 2;
  const std::string members = fmt::format(
      "  using T = {};\n  using InA = {};\n  using InB = {};\n"
      "  static constexpr bool kTransposeA = {}, kTransposeB = {}, kSourceA = {}, "
      "kSourceB = {};\n"
      "  static constexpr int kM = {}, kN = {}, kK = {}, kLeadA = {}, kLeadB = {}, kAtOnceA = {}, kAtOnceB = {};\n"
      "  static constexpr int64_t kStrideA = {}, kStrideB = {};\n"
      "  static constexpr int kTall = {}, kWide = {}, kDeep = {}, kStages = {}, kWarpRows = {}, kWarpCols = {}, "
      "kParts = {}, kSplits = {}, kSide = {}, kThreads = {}, kShared = {};\n",
      memory_type(g.dtype), memory_type(type_of(sources.a)), memory_type(type_of(sources.b)), g.transpose_a,
      g.transpose_b, computed_a, computed_b, g.m, g.n, g.k, lda, ldb,
      at_once(sources.a, lda, g.transpose_a ? g.m : g.k, stride_a),
      at_once(sources.b, ldb, g.transpose_b ? g.k : g.n, stride_b), stride_a, stride_b, tile.tall, tile.wide, deep,
      stages, tile.rows, tile.cols, tile.parts, splits, vector_width, kStepThreads, shared);
  const std::string type =
      fmt::format("Product_{}", md5_hex(std::span(reinterpret_cast<const uint8_t*>(members.data()), members.size())));
  GemmStep out;
  out.prelude = fmt::format(
      "#include \"gemm.cuh\"\nusing namespace lockstep;\n#ifndef HAS_{0}\n#define HAS_{0}\nstruct {0} "
      "{{\n{1}}};\n#endif\n",
      type, members);
  out.call = fmt::format("Gemm<{}>::run<Read>", type);
  const int64_t idle = kStepThreads - tile.rows * tile.cols * tile.parts * 32;
  const int64_t adders = idle > 0 ? idle : kStepThreads;
  if (splits == 1 && g.batch == 1 && !g.transpose_b && !computed_b && g.n % tile.wide == 0 && adders % tile.wide == 0 &&
      deep % (adders / tile.wide) == 0)
    out.columns = {fmt::format("Gemm<{}>", type), tile.wide, adders};
  out.bring_a = fmt::format("Gemm<{}>::bring_a", type);
  out.bring_b = fmt::format("Gemm<{}>::bring_b", type);
  out.vector_width = vector_width;
  out.register_bound = register_bound;
  out.blocks = tiles * splits;
  if (has_whole_rows(g, *choice))
    out.share = {tile.tall / splits, tile.wide, g.m, g.n, fmt::format("Gemm<{}>::Place", type)};
  if (splits > 1) out.partial_bytes = out.blocks * tile.tall * tile.wide * 4;
  out.shared_bytes = shared;
  return out;
}

}  // namespace lockstep
