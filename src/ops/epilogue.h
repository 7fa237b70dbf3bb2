// BodyEpilogue: an elementwise program that runs on each finished tile of a dense row-major product. Immutable: several
// threads may process tiles at the same time.
#pragma once

#include <memory>
#include <vector>

#include "lane/cpu/tile.h"
#include "lane/pool.h"
#include "ops/tiled_program.h"
#include "program/op.h"

namespace lockstep {

class BodyEpilogue {
 public:
  // For a row with `body`: input 0 of the body is the product; its other inputs are the row's operands from `first` on.
  BodyEpilogue(const KernelSpec& spec, size_t first)
      : tiled_(TiledProgram::compile(spec.attrs.program("body"), shifted(spec.alias, first))),
        first_(first),
        element_bytes_(size_of(product(spec).dtype)) {}

  // Runs on a tile of a product of `rows` x `cols` matrices. `in` and `out` are the row's operands and results.
  void operator()(const Tile& tile, int64_t rows, int64_t cols, Pool& pool, const void* const* in,
                  void* const* out) const {
    void* scratch = pool.scratch(tile.thread, 0, tiled_.scratch_bytes());
    const void* const* body_in = in + first_ - 1;  // input 0 is not used
    const auto* data = static_cast<const std::byte*>(tile.data);
    if (tile.cols == cols && tile.ld == cols) {  // complete rows, contiguous
      const int64_t begin = (tile.batch * rows + tile.row0) * cols;
      tiled_.run_segment(body_in, out, begin, begin + tile.rows * cols, scratch, data);
      return;
    }
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t begin = (tile.batch * rows + tile.row0 + r) * cols + tile.col0;
      tiled_.run_segment(body_in, out, begin, begin + tile.cols, scratch, data + r * tile.ld * element_bytes_);
    }
  }

  // Runs over a product that is complete in memory.
  void run_on_array(Pool& pool, const void* product, const void* const* in, void* const* out) const {
    const auto* data = static_cast<const std::byte*>(product);
    pool.parallel_range(tiled_.size(), kGrain, [&](int64_t begin, int64_t end, int thread) {
      tiled_.run_segment(in + first_ - 1, out, begin, end, pool.scratch(thread, 0, tiled_.scratch_bytes()),
                         data + begin * element_bytes_);
    });
  }

  static const Type& product(const KernelSpec& spec) {
    const Program& body = spec.attrs.program("body");
    return body.types[body.inputs[0]];
  }

 private:
  static constexpr int64_t kGrain = 16384;

  // Converts operand numbers of the row to input numbers of the body.
  static std::vector<int> shifted(std::span<const int> alias, size_t first) {
    std::vector<int> out(alias.begin(), alias.end());
    for (int& a : out)
      if (a >= 0) a -= static_cast<int>(first) - 1;
    return out;
  }

  TiledProgram tiled_;
  size_t first_;
  int64_t element_bytes_;
};

}  // namespace lockstep
