// Products with small matrices as steps (step.h), row by row: a thread block computes a few rows of the result and
// reads all of the second matrix for each. Computations on a row before and after it therefore need no other thread
// block. Pure functions, safe from any thread.
#pragma once

#include "ops/cuda/gemm_text.h"

namespace lockstep {

// Into how many ranges (thread blocks) the rows may be divided: a divisor of `most` that is at least `least`.
struct RowProduct {
  int64_t most = 0, least = 0;
};
// Returns nullopt if this is slower than tiles for every number of ranges.
std::optional<RowProduct> row_product(const GemmSpec& spec);
// `rounded`: the second matrix is f32, rounded to the product's type when loaded.
GemmStep row_product_step(const GemmSpec& spec, int64_t count, bool rounded = false);

}  // namespace lockstep
