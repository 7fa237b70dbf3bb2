// Products of rows of which every block has some columns only (CudaSpread), by a warp for each row.
#pragma once

#include "ops/cuda/gemm_text.h"

namespace lockstep {

// What kernels include as "share.h".
extern const char* const kShareText;

// Which of them it can be. REQUIRES: row_product(spec).
CudaSpread::Kind spread_kind(const GemmSpec& spec);
// With so many columns in a block. `rounded`: the second matrix is of floats, which are rounded. REQUIRES: that kind.
GemmStep shared_sums_step(const GemmSpec& spec, int64_t cols, bool rounded = false);
GemmStep shared_columns_step(const GemmSpec& spec, int64_t cols, bool rounded = false);
std::string shared_sums_give(const GemmSpec& spec, int64_t cols, bool rounded = false);

}  // namespace lockstep
