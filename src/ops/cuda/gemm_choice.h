// In what tiles a matrix product of a step (gemm_text.h) is computed. A pure function.
#pragma once

#include <cstdint>
#include <optional>

#include "lane/cpu/gemm.h"

namespace lockstep {

// Operands that are computed by those who need them: a block has all it needs of them at once.
struct GemmSources {
  bool a = false, b = false;
};

struct GemmChoice {
  // A tile of the result, and how the warps of a block share it: its rows, its columns, and the sum.
  struct Tile {
    int64_t tall, wide;
    int rows, cols, parts;
  } tile{};
  int64_t splits = 1;        // blocks that share each sum: a power of two
  int64_t deep = 0;          // elements of the sum that come at a time,
  int64_t stages = 0;        // and how many times that is on its way
  int64_t tiles = 0;         // of all of the result
  int64_t shared_bytes = 0;  // of a block
};

// Does each block finish whole rows of a tile, and are all tiles whole?
bool has_whole_rows(const GemmSpec& spec, const GemmChoice& choice);

// For a GPU of so many processors, on which a block has so much memory of its own; nothing where no tile fits. Blocks
// that share a sum are never more than processors. `told`: so many floats for each row and block are told all blocks
// that have the same rows (CudaSpread), for which all must run at a time and have whole rows.
std::optional<GemmChoice> choose_tiles(const GemmSpec& spec, int processors, int64_t shared_bytes,
                                       GemmSources sources = {}, int64_t told = 0);

}  // namespace lockstep
