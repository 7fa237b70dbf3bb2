// Tile: a finished tile of a product, passed to an epilogue while it is in cache. Plain values.
#pragma once

#include <cstdint>

#include "lane/function_ref.h"

namespace lockstep {

// Rows [row0, row0 + rows) and columns [col0, col0 + cols) of matrix `batch` of the result. Element (r, c) of the tile
// is at data[r * ld + c], in the result's dtype.
struct Tile {
  int64_t batch = 0;
  int64_t row0 = 0, rows = 0;
  int64_t col0 = 0, cols = 0;
  void* data = nullptr;  // in C if the product is written to memory, else scratch that the epilogue may overwrite
  int64_t ld = 0;
  int thread = 0;  // index of the running thread in the pool; scratch slots 0 to 3 are free
};

// Called once for every tile, concurrently from several threads; the tiles are disjoint and cover the result.
using Epilogue = FunctionRef<void(const Tile&)>;

}  // namespace lockstep
