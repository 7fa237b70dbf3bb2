#include "ops/cuda/gemm_choice.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda/cost_model.h"

namespace lockstep {
namespace {

int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

int warps_of(const CudaTile& tile) { return tile.warp_rows * tile.warp_cols * tile.warp_parts; }

// Bytes of an element in memory.
int64_t stored(const GemmSpec& g, GemmOperand how) { return how == GemmOperand::rounded ? 4 : size_of(g.dtype); }

// The elements of a sum that the tensor cores add up in one step.
int64_t k_step(const GemmSpec& g) { return 32 / size_of(g.dtype); }

// The pipeline stages that a thread block goes through.
int64_t stages_of_block(const GemmSpec& g, const CudaTile& tile) {
  return ceil_div(ceil_div(g.k, tile.deep), tile.splits);
}

// The layout of a tile in shared memory. A depth and a number of stages of 0 are chosen. Returns nullopt if it does not
// fit.
std::optional<GemmChoice> laid_out(const GemmSpec& g, CudaTile tile, int processors, int64_t shared_bytes,
                                   GemmSources sources) {
  using namespace cost_model;
  if (warps_of(tile) < kWarps && size_of(g.dtype) == 2) return {};
  GemmChoice out;
  out.tiles = ceil_div(g.m, tile.tall) * ceil_div(g.n, tile.wide) * g.batch;
  // All warps that share the sum have a part of each stage.
  if (tile.deep == 0)
    tile.deep =
        std::max<int64_t>(k_step(g) * (g.k >= kLongSum ? kStageSteps : kStageSteps / 2), k_step(g) * tile.warp_parts);
  if (tile.splits > 1 && (out.tiles * tile.splits > processors || ceil_div(g.k, tile.deep) < tile.splits)) return {};
  const int64_t most = stages_of_block(g, tile);
  const auto bytes_of = [&](GemmOperand how, bool deep_first, int64_t free) {
    const int64_t size = stored(g, how), deep = how == GemmOperand::computed ? most * tile.deep : tile.deep;
    const bool rounded = how == GemmOperand::rounded;  // see pad_of
    return (deep_first ? deep * (free + (rounded ? 4 : 8)) : free * (deep + (rounded ? 8 : 16 / size))) * size;
  };
  const int64_t a = bytes_of(sources.a, g.transpose_a, tile.tall), b = bytes_of(sources.b, !g.transpose_b, tile.wide);
  const int64_t held = (sources.a == GemmOperand::computed ? a : 0) + (sources.b == GemmOperand::computed ? b : 0);
  const int64_t stage = a + b - held;
  const int64_t room = stage > 0 ? std::max<int64_t>(shared_bytes - held, 0) / stage : kFewestStages;
  if (tile.stages == 0)
    tile.stages = std::clamp<int64_t>(most + 1, kFewestStages, std::clamp<int64_t>(room, kFewestStages, kMostStages));
  out.shared_bytes =
      std::max<int64_t>(held + stage * std::min(tile.stages, most), tile.warp_parts * tile.tall * (tile.wide + 8) * 4);
  if (out.shared_bytes > shared_bytes) return {};
  out.tile = tile;
  return out;
}

// The number of load instructions per warp and k-step for `tall` x 16 rows and `wide` x 8 columns.
double loads_of(const GemmSpec& g, GemmSources sources, double tall, double wide) {
  using namespace cost_model;
  if (size_of(g.dtype) == 4) return kLoadsF32.rows * tall + kLoadsF32.columns * wide;
  const auto loads = [](GemmOperand how, bool transpose) -> const OperandLoads& {
    return how != GemmOperand::rounded ? kLoads16 : transpose ? kLoadsRoundedTransposed : kLoadsRounded;
  };
  return tall * loads(sources.a, g.transpose_a).rows + wide * loads(sources.b, g.transpose_b).columns;
}

// The passes after the first in which a thread block computes `free` rows or columns of an operand.
double further_passes(const GemmSpec& g, const CudaTile& tile, GemmOperand operand, int64_t free) {
  const int64_t held = free * stages_of_block(g, tile) * tile.deep;
  return operand == GemmOperand::computed ? static_cast<double>(ceil_div(held, cost_model::kComputedAtOnce) - 1) : 0.0;
}

// The estimated time: the data that a thread block moves, the instructions of its warps, and the exchange of partial
// sums.
double cost_of(const GemmSpec& g, const GemmChoice& how, int processors, GemmSources sources) {
  using namespace cost_model;
  const CudaTile& tile = how.tile;
  const auto splits = static_cast<double>(tile.splits), area = static_cast<double>(tile.tall * tile.wide);
  const double in =
      static_cast<double>((tile.tall * stored(g, sources.a) + tile.wide * stored(g, sources.b)) * g.k) / splits;
  const double moved = in + area * kEpilogueBytes / splits + (tile.splits > 1 ? area * kPartialSumBytes : 0);
  const double tall = static_cast<double>(tile.tall) / tile.warp_rows / 16,
               wide = static_cast<double>(tile.wide) / tile.warp_cols / 8;
  const double each = tall * wide + loads_of(g, sources, tall, wide);
  const double instructions =
      static_cast<double>(g.k) / static_cast<double>(k_step(g)) / tile.warp_parts / splits * each +
      in / (16 * kStepThreads) * kCopyInstructions;
  const auto stages = static_cast<double>(stages_of_block(g, tile));
  const double busy = static_cast<double>(warps_of(tile)) / kWarps;
  const double block = kBlockTime + std::max(moved / kL2BytesPerNanosecond, instructions * kInstructionTime * busy) +
                       stages * kStageTime +
                       (tile.splits > 1 ? kSplitTime + kTimePerSplit * splits + kSplitTimePerElement * area : 0);
  const double blocks = static_cast<double>(how.tiles) * splits;
  const double computed = kComputedPassTime * (further_passes(g, tile, sources.a, tile.tall) +
                                               further_passes(g, tile, sources.b, tile.wide));
  return computed + block * (kRoundsShare * std::ceil(blocks / processors) + kBlocksShare * blocks / processors);
}

// Whether thread blocks can exchange values of complete rows; the estimated time of the exchange.
bool can_exchange(const GemmSpec& g, const GemmChoice& how, int processors) {
  return how.blocks() <= processors && has_whole_rows(g, how);
}
double exchange_cost(const GemmSpec& g, const CudaTile& tile, int64_t exchanged) {
  return static_cast<double>(tile.tall / tile.splits * (g.n / tile.wide) * exchanged * cost_model::kExchangedBytes) /
         cost_model::kL2BytesPerNanosecond;
}

// Whether kernels exist for a tile that the cost model has not chosen.
bool is_known_tile(const GemmSpec& g, const CudaTile& tile) {
  using namespace cost_model;
  const auto same_shape = [&](const CudaTile& each) {
    return each.tall == tile.tall && each.wide == tile.wide && each.warp_rows == tile.warp_rows &&
           each.warp_cols == tile.warp_cols && each.warp_parts == tile.warp_parts;
  };
  return std::any_of(std::begin(kGemmTiles), std::end(kGemmTiles), same_shape) &&
         std::find(std::begin(kGemmSplits), std::end(kGemmSplits), tile.splits) != std::end(kGemmSplits) &&
         tile.deep >= 0 && tile.deep % (k_step(g) * tile.warp_parts) == 0 &&
         (tile.stages == 0 || (tile.stages >= kFewestStages && tile.stages <= kMostStages));
}

}  // namespace

bool has_whole_rows(const GemmSpec& g, const GemmChoice& how) {
  const CudaTile& tile = how.tile;
  return g.batch == 1 && g.m % tile.tall == 0 && g.n % tile.wide == 0 && tile.tall % tile.splits == 0;
}

std::optional<GemmChoice> choose_tiles(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources,
                                       int64_t exchanged, const std::optional<CudaTile>& fixed) {
  const auto with = [&](const CudaTile& tile) {
    std::optional<GemmChoice> choice = laid_out(spec, tile, processors, shared_bytes, sources);
    if (!choice || (exchanged > 0 && !can_exchange(spec, *choice, processors))) return std::optional<GemmChoice>();
    choice->nanoseconds = cost_of(spec, *choice, processors, sources) + exchange_cost(spec, choice->tile, exchanged);
    return choice;
  };
  if (fixed) return is_known_tile(spec, *fixed) ? with(*fixed) : std::nullopt;
  std::optional<GemmChoice> best;
  for (CudaTile tile : cost_model::kGemmTiles)
    for (const int64_t splits : cost_model::kGemmSplits) {
      tile.splits = splits;
      const std::optional<GemmChoice> choice = with(tile);
      if (choice && (!best || choice->nanoseconds < best->nanoseconds)) best = choice;
    }
  return best;
}

bool is_worth_rounding(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources) {
  double most = 0;
  GemmSources read = sources;
  for (GemmOperand* each : {&read.a, &read.b})
    if (*each == GemmOperand::rounded) {
      *each = GemmOperand::read;
      most += cost_model::kRoundingTime;
    }
  const std::optional<GemmChoice> with = choose_tiles(spec, processors, shared_bytes, sources),
                                  without = choose_tiles(spec, processors, shared_bytes, read);
  return with && without && with->nanoseconds <= without->nanoseconds + most;
}

}  // namespace lockstep
