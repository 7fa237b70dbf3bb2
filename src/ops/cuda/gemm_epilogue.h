// Recognizes elementwise programs that cuBLASLt can run as the epilogue of a product. Safe from any thread.
#pragma once

#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "program/program.h"

namespace lockstep {

struct MatchedEpilogue {
  GemmEpilogue epilogue;
  size_t result = 0;  // the output that is the product with its epilogue
  // The output that marks where relu gave 0, for its gradient: `result <= 0`.
  std::optional<size_t> is_cut = {};
};

// Matches `body`, whose first input is a product of matrices with this number of columns and whose second input, if
// any, is the bias. Returns nullopt if it is not an epilogue of cuBLASLt.
std::optional<MatchedEpilogue> epilogue_of(const Program& body, int64_t columns);

}  // namespace lockstep
