#include "ops/cuda/gemm_choice.h"

#include <algorithm>
#include <cmath>

#include "ops/cuda/step.h"

namespace lockstep {
namespace {

constexpr int kWarps = kStepThreads / 32;
constexpr GemmChoice::Tile kTiles[] = {
    {128, 128, 2, kWarps / 4, 1}, {128, 128, 4, kWarps / 4, 1}, {128, 64, 4, 2, kWarps / 8},
    {64, 64, 1, 2, kWarps / 4},   {64, 64, 2, 2, kWarps / 4},   {64, 32, 2, 2, kWarps / 4},
    {32, 32, 2, 2, kWarps / 4},   {16, 32, 1, 2, kWarps / 2},   {16, 16, 1, 2, kWarps / 2}};
constexpr int64_t kSplits[] = {1, 2, 4, 8, 16};

int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Bytes of an element in memory.
int64_t stored(const GemmSpec& g, GemmOperand how) { return how == GemmOperand::rounded ? 4 : size_of(g.dtype); }

// The layout of a tile in shared memory. Returns nullopt if it does not fit.
std::optional<GemmChoice> laid_out(const GemmSpec& g, const GemmChoice::Tile& tile, int64_t splits, int processors,
                                   int64_t shared_bytes, GemmSources sources) {
  GemmChoice out{.tile = tile, .splits = splits};
  // Using half of the warps reads a quarter less f32 data, which limits large tiles.
  const bool half = tile.rows * tile.cols * tile.parts < kWarps;
  if (half && size_of(g.dtype) == 2) return {};
  out.tiles = ceil_div(g.m, tile.tall) * ceil_div(g.n, tile.wide) * g.batch;
  const int64_t least = 32 / size_of(g.dtype);
  // Few large stages: each costs a __syncthreads(). All warps that share the sum have a part of each stage.
  out.deep = std::max<int64_t>(least * (g.k >= 512 ? 8 : 4), least * tile.parts);
  const int64_t steps = ceil_div(g.k, out.deep);
  if (splits > 1 && (out.tiles * splits > processors || steps < splits)) return {};
  const int64_t most = ceil_div(steps, splits);
  const auto bytes_of = [&](GemmOperand how, bool deep_first, int64_t free) {
    const int64_t size = stored(g, how), deep = how == GemmOperand::computed ? most * out.deep : out.deep;
    const bool rounded = how == GemmOperand::rounded;  // see pad_of
    return (deep_first ? deep * (free + (rounded ? 4 : 8)) : free * (deep + (rounded ? 8 : 16 / size))) * size;
  };
  const int64_t a = bytes_of(sources.a, g.transpose_a, tile.tall), b = bytes_of(sources.b, !g.transpose_b, tile.wide);
  const int64_t held = (sources.a == GemmOperand::computed ? a : 0) + (sources.b == GemmOperand::computed ? b : 0);
  const int64_t stage = a + b - held;
  // As many stages in flight as fit: their loads wait for the L2 cache.
  const int64_t room = stage > 0 ? std::max<int64_t>(shared_bytes - held, 0) / stage : 2;
  out.stages = std::clamp<int64_t>(most + 1, 2, std::clamp<int64_t>(room, 2, 6));
  out.shared_bytes =
      std::max<int64_t>(held + stage * std::min(out.stages, most), tile.parts * tile.tall * (tile.wide + 8) * 4);
  if (out.shared_bytes > shared_bytes) return {};
  return out;
}

// The number of load instructions per warp and k-step (16 elements of the sum, 8 for f32) for `tall` x 16 rows and
// `wide` x 8 columns. Rounded operands need loads of two or four elements, and a conversion for each two.
double loads_of(const GemmSpec& g, GemmSources sources, double tall, double wide) {
  if (size_of(g.dtype) == 4) return 3 * tall + 1.75 * wide;
  const bool round_a = sources.a == GemmOperand::rounded, round_b = sources.b == GemmOperand::rounded;
  return tall * (!round_a ? 1 : g.transpose_a ? 6 : 8) + wide * (!round_b ? 0.5 : g.transpose_b ? 4 : 3);
}

// The estimated time in nanoseconds: the data that a thread block moves, the instructions of its warps (measured on an
// H200), and the exchange of partial sums. Among equal times, the choice that uses less of the GPU is cheaper.
double cost_of(const GemmSpec& g, const GemmChoice& how, int processors, GemmSources sources) {
  const GemmChoice::Tile& tile = how.tile;
  const bool half = size_of(g.dtype) == 2;
  const auto splits = static_cast<double>(how.splits), area = static_cast<double>(tile.tall * tile.wide);
  const double in =
      static_cast<double>((tile.tall * stored(g, sources.a) + tile.wide * stored(g, sources.b)) * g.k) / splits;
  const double moved = in + area * 8 / splits + (how.splits > 1 ? area * 8 : 0);
  const double tall = static_cast<double>(tile.tall) / tile.rows / 16,
               wide = static_cast<double>(tile.wide) / tile.cols / 8;
  const double each = tall * wide + loads_of(g, sources, tall, wide);
  const double instructions =
      static_cast<double>(g.k) / (half ? 16 : 8) / tile.parts / splits * each + in / (16 * kStepThreads) * 7;
  const auto steps = static_cast<double>(ceil_div(ceil_div(g.k, how.deep), how.splits));
  const double busy = static_cast<double>(tile.rows * tile.cols * tile.parts) / kWarps;
  const double block = 700 + std::max(moved / 50, instructions * 8 * busy) + steps * 100 +
                       (how.splits > 1 ? 300 + 60 * splits + 0.22 * area : 0);
  const double blocks = static_cast<double>(how.tiles) * splits;
  // A thread computes 8 x 4 elements of an operand at a time, each with two dependent loads.
  const auto times = [&](GemmOperand operand, int64_t free) {
    const int64_t held = free * ceil_div(ceil_div(g.k, how.deep), how.splits) * how.deep;
    return operand == GemmOperand::computed ? static_cast<double>(ceil_div(held, int64_t{32} * kStepThreads) - 1) : 0.0;
  };
  const double computed = 1500 * (times(sources.a, tile.tall) + times(sources.b, tile.wide));
  return computed + block * (0.9 * std::ceil(blocks / processors) + 0.1 * blocks / processors);
}

// Whether thread blocks can exchange values of complete rows; the estimated time of the exchange.
bool can_exchange(const GemmSpec& g, const GemmChoice& how, int processors) {
  return how.tiles * how.splits <= processors && has_whole_rows(g, how);
}
double exchange_cost(const GemmSpec& g, const GemmChoice& how, int64_t exchanged) {
  return static_cast<double>(how.tile.tall / how.splits * (g.n / how.tile.wide) * exchanged * 8) / 50;
}

}  // namespace

bool has_whole_rows(const GemmSpec& g, const GemmChoice& how) {
  return g.batch == 1 && g.m % how.tile.tall == 0 && g.n % how.tile.wide == 0 && how.tile.tall % how.splits == 0;
}

std::optional<GemmChoice> choose_tiles(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources,
                                       int64_t exchanged) {
  std::optional<GemmChoice> best;
  for (const GemmChoice::Tile& tile : kTiles)
    for (const int64_t splits : kSplits) {
      std::optional<GemmChoice> choice = laid_out(spec, tile, splits, processors, shared_bytes, sources);
      if (!choice || (exchanged > 0 && !can_exchange(spec, *choice, processors))) continue;
      choice->nanoseconds = cost_of(spec, *choice, processors, sources) + exchange_cost(spec, *choice, exchanged);
      if (!best || choice->nanoseconds < best->nanoseconds) best = choice;
    }
  return best;
}

bool is_worth_rounding(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources) {
  constexpr double kLittle = 1500;  // about the time to round a million elements first, and for a grid barrier
  double most = 0;
  GemmSources read = sources;
  for (GemmOperand* each : {&read.a, &read.b})
    if (*each == GemmOperand::rounded) {
      *each = GemmOperand::read;
      most += kLittle;
    }
  const std::optional<GemmChoice> with = choose_tiles(spec, processors, shared_bytes, sources),
                                  without = choose_tiles(spec, processors, shared_bytes, read);
  return with && without && with->nanoseconds <= without->nanoseconds + most;
}

}  // namespace lockstep
