// Selects the tiles in which a step (gemm_text.h) computes a matrix product. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "lane/cpu/gemm.h"
#include "ops/cuda/step.h"

namespace lockstep {

// How thread blocks obtain an operand:
//   read      load it from global memory
//   computed  compute it; each thread block computes all that it needs in advance
//   rounded   load f32, which is rounded to the product's type on the way to the tensor cores
enum class GemmOperand : uint8_t { read, computed, rounded };
struct GemmSources {
  GemmOperand a = GemmOperand::read, b = GemmOperand::read;
  bool first = false;  // the operand that is not computed was written before the step's phase
};

struct GemmChoice {
  CudaTile tile = {};
  int64_t tiles = 0;         // of the complete result
  int64_t shared_bytes = 0;  // per thread block
  double nanoseconds = 0;    // estimated

  int64_t blocks() const { return tiles * tile.splits; }
};

// Whether each thread block finishes complete rows of a tile, and the tiles divide the result evenly.
bool has_whole_rows(const GemmSpec& spec, const GemmChoice& choice);

// Selects the tile with the shortest estimated time (cost_model.h), for a GPU with `processors` multiprocessors and
// `shared_bytes` of shared memory per thread block. Returns nullopt if no tile fits. At most `processors` thread blocks
// share a sum. `exchanged`: floats per row that each thread block sends to all thread blocks with the same rows
// (TaskForm::exchange). If not 0, all thread blocks must be resident at the same time and have complete rows.
// `fixed`: the tile to use instead, if it is one of the cost model's and fits; `deep` and `stages` of 0 are chosen.
std::optional<GemmChoice> choose_tiles(const GemmSpec& spec, int processors, int64_t shared_bytes,
                                       GemmSources sources = {}, int64_t exchanged = 0,
                                       const std::optional<CudaTile>& fixed = {});

// Reading f32 doubles the bytes that each thread block loads. Whether that takes little longer than reading operands
// that an earlier step has rounded.
bool is_worth_rounding(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources);

}  // namespace lockstep
