// Recognizes elementwise programs that cuBLASLt can run as the epilogue of a product. Safe from any thread.
#pragma once

#include <optional>

#include "lane/cuda/gemm_cuda.h"
#include "program/builder.h"
#include "program/program.h"

namespace lockstep {

struct MatchedEpilogue {
  GemmEpilogue epilogue;
  size_t result = 0;                     // the output that is the product with its epilogue
  std::optional<size_t> relu_mask = {};  // the output that is relu_mask() of the product; cuBLASLt does not compute it
  // Inputs of the body: the bias, the residual, and the argument of gelu_slope. The argument of gelu, if it is kept, is
  // an output.
  std::optional<size_t> bias = {}, residual = {}, argument = {}, kept_argument = {};
};

// Marks where relu(x) is 0, for its gradient: x <= 0. The masks of x and of relu(x) are equal.
Value relu_mask(Value x);

// Matches `body`, whose first input is a product of matrices with this number of columns. Returns nullopt if it is not
// an epilogue of cuBLASLt.
std::optional<MatchedEpilogue> epilogue_of(const Program& body, int64_t columns);

}  // namespace lockstep
