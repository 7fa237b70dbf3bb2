// Elementwise programs on a product that cuBLASLt can do by itself. Safe from any thread.
#pragma once

#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "program/program.h"

namespace lockstep {

struct MatchedEpilogue {
  GemmEpilogue epilogue;
  size_t result = 0;  // the one that is the product with its epilogue
  // Another, which says where relu gave 0, for its gradient: `result <= 0`.
  std::optional<size_t> is_cut = {};
};

// What `body` does to the elements of a product, its first input, whose matrices have so many columns; its second
// input, where there is one, is the bias. Nothing where it does anything else.
std::optional<MatchedEpilogue> epilogue_of(const Program& body, int64_t columns);

}  // namespace lockstep
