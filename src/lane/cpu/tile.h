// Tile: a finished piece of a product, handed to an epilogue while it is still in cache.
#pragma once

#include <cstdint>

#include "lane/function_ref.h"

namespace lockstep {

// Rows [row0, row0 + rows) and columns [col0, col0 + cols) of matrix `batch` of the result. Element (r, c) of the tile,
// counted from its own corner, is at data[r * ld + c], in the result's dtype.
struct Tile {
  int64_t batch = 0;
  int64_t row0 = 0, rows = 0;
  int64_t col0 = 0, cols = 0;
  void* data = nullptr;  // inside C when the product is written to memory, else scratch that the epilogue may overwrite
  int64_t ld = 0;
  int thread = 0;  // the running thread's index in the pool, for scratch slots 0 to 3
};

// Called once for every tile, from several threads at once; the tiles are disjoint and cover the result.
using Epilogue = FunctionRef<void(const Tile&)>;

}  // namespace lockstep
