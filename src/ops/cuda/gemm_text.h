// Matrix products as steps (step.h): one device function computes a tile of the result on the tensor cores, from the
// loads to the epilogue of each element. Pure functions, safe from any thread.
#pragma once

#include <optional>
#include <string>

#include "lane/cpu/gemm.h"
#include "ops/cuda/gemm_choice.h"
#include "ops/cuda/step.h"

namespace lockstep {

struct GemmStep {
  std::string prelude;  // includes, and a type that describes the product
  // "Gemm<...>::run<Read>", with arguments (block, a, b, partial, shared, read, finish). For element i of C, whose
  // value is x, it calls read(i, r), which loads the epilogue's other inputs into a Read, and then finish(i, x, r).
  // With a vector_width above 1, i is a multiple of it and x is an array of that many consecutive elements.
  std::string call;
  int vector_width = 1;
  // If not empty: "Gemm<...>::prefetch_a", with arguments (block, a, shared), prefetches operand a; prefetch_b likewise b.
  // Then `call` takes two more arguments. Bits 0 and 1 of `prefetched` say which operands were prefetched. while_waiting() is
  // called when the thread block has computed its part of the product.
  std::string prefetch_a, prefetch_b;
  // If present, `b` may be a ColumnSummed<>, which also adds up its columns. `type` is "Gemm<...>"; its Place(block) has
  // `row`, 0 for the thread blocks that add up columns, and `col`, the first of their `wide` columns. When
  // while_waiting() is called, column_sum(parts, c) returns the sum of a column from `parts` floats of shared memory.
  struct Columns {
    std::string type;
    int64_t wide = 0, parts = 0;
  };
  std::optional<Columns> columns = {};
  bool register_bound = false;  // threads have no free registers
  int64_t blocks = 0;
  CudaStep::Share share = {};
  std::optional<CudaTile> tile = {};
  int64_t shared_bytes = 0;
  // Bytes of memory in which thread blocks that share a sum exchange their partial sums; zeroed before the first run. 0
  // if no sum is shared. If not 0, thread blocks wait for each other.
  int64_t partial_bytes = 0;
};

// The step for a GPU with `processors` multiprocessors and `shared_bytes` of shared memory per thread block. Nothing
// if the tensor cores do not support the product. They support f32 (with TF32) and 16-bit floats, and sum in f32. An
// operand that `sources` declares computed is a function (CudaSource); one that is rounded is an array of f32, for
// 16-bit products only. Nothing if reading a computed operand is faster, unless the tile is fixed. `exchanged`, `fixed`:
// see choose_tiles().
std::optional<GemmStep> gemm_step(const GemmSpec& spec, int processors, int64_t shared_bytes, GemmSources sources = {},
                                  int64_t exchanged = 0, const std::optional<CudaTile>& fixed = {});

}  // namespace lockstep
