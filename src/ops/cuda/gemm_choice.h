// In what tiles a matrix product of a step (gemm_text.h) is computed. A pure function.
#pragma once

#include <cstdint>
#include <optional>

#include "lane/cpu/gemm.h"

namespace lockstep {

// How blocks come by an operand: they read it; they compute it, each all that it needs of it at once; or they read
// floats, which are rounded to the product's type on their way to the tensor cores.
enum class GemmOperand : uint8_t { read, computed, rounded };
struct GemmSources {
  GemmOperand a = GemmOperand::read, b = GemmOperand::read;
  bool first = false;  // what is not computed was there before
};

struct GemmChoice {
  // A tile of the result, and how the warps of a block share it: its rows, its columns, and the sum. All of the warps,
  // or some.
  struct Tile {
    int64_t tall, wide;
    int rows, cols, parts;
  } tile{};
  int64_t splits = 1;        // blocks that share each sum: a power of two
  int64_t deep = 0;          // elements of the sum that come at a time,
  int64_t stages = 0;        // and how many times that is on its way
  int64_t tiles = 0;         // of all of the result
  int64_t shared_bytes = 0;  // of a block
  double nanoseconds = 0;    // that it takes, about
};

// Does each block finish whole rows of a tile, and are all tiles whole?
bool has_whole_rows(const GemmSpec& spec, const GemmChoice& choice);

// For a GPU of so many processors, on which a block has so much memory of its own; nothing where no tile fits. Blocks
// that share a sum are never more than processors. `told`: so many floats for each row and block are told all blocks
// that have the same rows (CudaSpread), for which all must run at a time and have whole rows.
std::optional<GemmChoice> choose_tiles(const GemmSpec& spec, int processors, int64_t shared_bytes,
                                       GemmSources sources = {}, int64_t told = 0);

// Floats are twice as much to read for each block: does that take little longer than what others have rounded before?
bool is_worth_rounding(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources);

}  // namespace lockstep
