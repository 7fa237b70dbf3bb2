// Matrix products of steps: the tensor cores' tile, with whatever is to be done with each element of the result.
#include "ops/cuda/gemm_text.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/gemm_choice.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"

namespace lockstep {

namespace {

// The extents of a product's operands in memory, all of them given.
struct GemmMemory {
  int64_t lda, ldb, stride_a, stride_b;

  explicit GemmMemory(const GemmSpec& g)
      : lda(g.lda == GemmSpec::kDense ? cols_a(g) : g.lda),
        ldb(g.ldb == GemmSpec::kDense ? cols_b(g) : g.ldb),
        stride_a(g.stride_a == GemmSpec::kDense ? g.m * g.k : g.stride_a),
        stride_b(g.stride_b == GemmSpec::kDense ? g.k * g.n : g.stride_b) {}

  // Rows and columns as stored.
  static int64_t rows_a(const GemmSpec& g) { return g.transpose_a ? g.k : g.m; }
  static int64_t cols_a(const GemmSpec& g) { return g.transpose_a ? g.m : g.k; }
  static int64_t rows_b(const GemmSpec& g) { return g.transpose_b ? g.n : g.k; }
  static int64_t cols_b(const GemmSpec& g) { return g.transpose_b ? g.k : g.n; }
};

// Whether the tensor cores support the product, with operands from these sources.
bool tensor_cores_support(const GemmSpec& g, GemmSources sources) {
  const bool half = g.dtype == DType::bf16 || g.dtype == DType::f16;
  if (!half && g.dtype != DType::f32) return false;
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.batch * g.m * g.n >= INT32_MAX) return false;
  if (g.lda >= INT32_MAX || g.ldb >= INT32_MAX || g.m >= INT32_MAX / 2 || g.k >= INT32_MAX / 2) return false;
  if ((g.ldc != GemmSpec::kDense && g.ldc != g.n) || (g.stride_c != GemmSpec::kDense && g.stride_c != g.m * g.n))
    return false;
  if (!half && (sources.a == GemmOperand::rounded || sources.b == GemmOperand::rounded)) return false;
  // Computed operands are dense matrices; sources compute four elements at a time.
  const auto computable = [&](int64_t lead, int64_t rows, int64_t cols) {
    return g.batch == 1 && lead == cols && cols % 4 == 0 && rows * cols < INT32_MAX;
  };
  const GemmMemory memory(g);
  if (sources.a == GemmOperand::computed && !computable(memory.lda, GemmMemory::rows_a(g), GemmMemory::cols_a(g)))
    return false;
  return sources.b != GemmOperand::computed || computable(memory.ldb, GemmMemory::rows_b(g), GemmMemory::cols_b(g));
}

// Whether threads have no registers left for epilogue operands (kEarly in the text) or for sources.
bool is_register_bound(const CudaTile& tile) {
  return tile.tall / tile.warp_rows / 16 * (tile.wide / tile.warp_cols / 8) > cost_model::kFragmentsWithFreeRegisters;
}

// Whether computing operands is worthwhile. It takes registers. If other operands are there before the kernel, it saves
// a phase; otherwise the tile must be the same as with operands that are read.
bool is_worth_computing(const GemmSpec& g, const GemmChoice& choice, int processors, int64_t shared_bytes,
                        GemmSources sources, int64_t exchanged) {
  const auto read = [](GemmOperand how) { return how == GemmOperand::computed ? GemmOperand::read : how; };
  const std::optional<GemmChoice> plain =
      choose_tiles(g, processors, shared_bytes, {read(sources.a), read(sources.b)}, exchanged);
  if (!plain) return false;
  if (sources.first) return choice.nanoseconds <= plain->nanoseconds + cost_model::kPhaseTime;
  const bool same = plain->tile.tall == choice.tile.tall && plain->tile.wide == choice.tile.wide &&
                    plain->tile.splits == choice.tile.splits;
  return same && !is_register_bound(choice.tile);
}

// Consecutive elements that a thread finishes in one call.
int vector_width_of(const GemmSpec& g, const CudaTile& tile) {
  int width = 4;
  while (width > 1 && (g.n % width != 0 || tile.tall * tile.wide / tile.splits % (width * kStepThreads) != 0))
    width /= 2;
  return width;
}

// The members of the type that describes the product.
std::string members_of(const GemmSpec& g, const GemmChoice& choice, GemmSources sources) {
  const CudaTile& tile = choice.tile;
  const GemmMemory memory(g);
  const auto type_of = [&](GemmOperand how) { return how == GemmOperand::rounded ? DType::f32 : g.dtype; };
  // Bytes per copy: sixteen or four, if all rows begin at a multiple of that.
  const auto at_once = [&](GemmOperand how, int64_t lead, int64_t cols, int64_t stride) {
    const int64_t size = size_of(type_of(how));
    for (const int64_t bytes : {16, 4})
      if (lead * size % bytes == 0 && cols * size % bytes == 0 && stride * size % bytes == 0) return bytes;
    return size;
  };
  return fmt::format(
      "  using T = {};\n  using InA = {};\n  using InB = {};\n"
      "  static constexpr bool kTransposeA = {}, kTransposeB = {}, kSourceA = {}, "
      "kSourceB = {};\n"
      "  static constexpr int kM = {}, kN = {}, kK = {}, kLeadA = {}, kLeadB = {}, kAtOnceA = {}, kAtOnceB = {};\n"
      "  static constexpr int64_t kStrideA = {}, kStrideB = {};\n"
      "  static constexpr int kTall = {}, kWide = {}, kDeep = {}, kStages = {}, kWarpRows = {}, kWarpCols = {}, "
      "kParts = {}, kSplits = {}, kSide = {}, kThreads = {}, kShared = {};\n",
      memory_type(g.dtype), memory_type(type_of(sources.a)), memory_type(type_of(sources.b)), g.transpose_a,
      g.transpose_b, sources.a == GemmOperand::computed, sources.b == GemmOperand::computed, g.m, g.n, g.k, memory.lda,
      memory.ldb, at_once(sources.a, memory.lda, GemmMemory::cols_a(g), memory.stride_a),
      at_once(sources.b, memory.ldb, GemmMemory::cols_b(g), memory.stride_b), memory.stride_a, memory.stride_b,
      tile.tall, tile.wide, tile.deep, tile.stages, tile.warp_rows, tile.warp_cols, tile.warp_parts, tile.splits,
      vector_width_of(g, tile), kStepThreads, choice.shared_bytes);
}

// Whether the thread blocks of the first rows can add up the columns of the second matrix: the number of threads that
// do, or 0.
int64_t column_adders(const GemmSpec& g, const CudaTile& tile, GemmSources sources) {
  const int64_t idle = kStepThreads - tile.warp_rows * tile.warp_cols * tile.warp_parts * 32;
  const int64_t adders = idle > 0 ? idle : kStepThreads;
  const bool possible = tile.splits == 1 && g.batch == 1 && !g.transpose_b && sources.b != GemmOperand::computed &&
                        g.n % tile.wide == 0 && adders % tile.wide == 0 && tile.deep % (adders / tile.wide) == 0;
  return possible ? adders : 0;
}

}  // namespace

std::optional<GemmStep> gemm_step(const GemmSpec& g, int processors, int64_t shared_bytes, GemmSources sources,
                                  int64_t exchanged, const std::optional<CudaTile>& fixed) {
  if (!tensor_cores_support(g, sources)) return {};
  const std::optional<GemmChoice> choice = choose_tiles(g, processors, shared_bytes, sources, exchanged, fixed);
  if (!choice) return {};
  const bool computes = sources.a == GemmOperand::computed || sources.b == GemmOperand::computed;
  if (computes && !fixed && !is_worth_computing(g, *choice, processors, shared_bytes, sources, exchanged)) return {};
  const CudaTile& tile = choice->tile;
  const std::string members = members_of(g, *choice, sources);
  const std::string type =
      fmt::format("Product_{}", md5_hex(std::span(reinterpret_cast<const uint8_t*>(members.data()), members.size())));
  GemmStep out;
  out.prelude = fmt::format(
      "#include \"gemm.cuh\"\nusing namespace lockstep;\n#ifndef HAS_{0}\n#define HAS_{0}\nstruct {0} "
      "{{\n{1}}};\n#endif\n",
      type, members);
  out.call = fmt::format("Gemm<{}>::run<Read>", type);
  if (const int64_t adders = column_adders(g, tile, sources); adders > 0)
    out.columns = {fmt::format("Gemm<{}>", type), tile.wide, adders};
  out.prefetch_a = fmt::format("Gemm<{}>::prefetch_a", type);
  out.prefetch_b = fmt::format("Gemm<{}>::prefetch_b", type);
  out.vector_width = vector_width_of(g, tile);
  out.register_bound = is_register_bound(tile);
  out.blocks = choice->blocks();
  if (has_whole_rows(g, *choice))
    out.share = {tile.tall / tile.splits, tile.wide, g.m, g.n, fmt::format("Gemm<{}>::Place", type)};
  if (tile.splits > 1) out.partial_bytes = out.blocks * tile.tall * tile.wide * 4;
  out.tile = tile;
  out.shared_bytes = choice->shared_bytes;
  return out;
}

}  // namespace lockstep
