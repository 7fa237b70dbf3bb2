// Matrix products as steps (step.h): a tile of the result by the tensor cores, from loads to what is made of each
// element, in one device function.
#pragma once

#include <optional>
#include <string>

#include "lane/cpu/gemm.h"
#include "ops/cuda/gemm_choice.h"
#include "ops/cuda/step.h"

namespace lockstep {

// What kernels include as "tiles.h" and "gemm.h".
extern const char* const kTilesText;
extern const char* const kGemmText;

struct GemmStep {
  std::string prelude;  // includes and a type that says all about the product
  // "Gemm<...>::run<Read>": of (block, a, b, partial, shared, read, finish). For element i of C, whose value is x,
  // read(i, r) sets what else is needed, a Read, and finish(i, x, r) is called after. Or for `side` elements from i on,
  // a multiple of that, at once, whose values are the array x.
  std::string call;
  int side = 1;
  // Where not empty: "Gemm<...>::bring_a", of (block, a, shared), and the same of b. What one of them has brought
  // before, `call` is told by one more argument, `early`: bit 0 and bit 1. The last is what a block does when it has
  // the product, meanwhile().
  std::string bring_a, bring_b;
  // Where `b` may be a Summed<>: the type, "Gemm<...>", whose Place(block) has `row`, 0 where columns are added up, and
  // `col`, the first of `wide`; column_sum(parts, c) is then one's sum, when meanwhile() is called. `parts`: floats.
  struct Columns {
    std::string type;
    int64_t wide = 0, parts = 0;
  };
  std::optional<Columns> columns = {};
  bool crowded = false;  // threads have no registers left
  int64_t blocks = 0;
  CudaStep::Share share = {};
  int64_t shared_bytes = 0;
  // Of memory through which blocks that share a sum give each other their parts, all zero before the first run; 0 where
  // none do. They wait for each other.
  int64_t partial_bytes = 0;
};

// Nothing where this is not for the tensor cores: f32 (with TF32) and 16-bit floats are, whose sums are f32.
// For a GPU of so many processors, on which a block has so much memory of its own. `a` or `b` is a function
// (CudaSource) where `sources` says that it is computed, and floats where it is rounded, which only 16-bit floats are.
// `told`: see choose_tiles().
std::optional<GemmStep> gemm_step(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources = {},
                                  int64_t told = 0);

}  // namespace lockstep
