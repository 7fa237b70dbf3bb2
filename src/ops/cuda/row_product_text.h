// Matrix products as steps (step.h), row by row, for small matrices: a block computes a few rows of the result and
// reads all of the second matrix for each, so that what is done with a row before and after needs no other block.
#pragma once

#include "ops/cuda/gemm_text.h"

namespace lockstep {

// What kernels include as "row_product.h".
extern const char* const kRowProductText;

// The rows in `count` ranges: blocks. Nothing where that would not be worth it, whatever the number.
struct RowProduct {
  int64_t most = 0, least = 0;  // of ranges: their number divides the former and is not below the latter
};
std::optional<RowProduct> row_product(const GemmSpec& spec);
// `rounded`: the second matrix is of floats, which are rounded to the product's type.
GemmStep row_product_step(const GemmSpec& spec, int64_t count, bool rounded = false);

}  // namespace lockstep
