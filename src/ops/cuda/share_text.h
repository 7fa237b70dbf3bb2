// Products of rows of which every thread block has only some columns (TaskTraits::Spread); one warp per row. Pure
// functions, safe from any thread.
#pragma once

#include "ops/cuda/gemm_text.h"
#include "ops/cuda/task.h"

namespace lockstep {

// The kind of spread that this product supports. REQUIRES: row_product(spec).
TaskTraits::Spread::Kind spread_kind(const GemmSpec& spec);
// The step for thread blocks with `cols` columns each. `rounded`: the second matrix is f32, rounded to the product's
// type when loaded. REQUIRES: spread_kind(spec) is that kind.
GemmStep shared_sums_step(const GemmSpec& spec, int64_t cols, bool rounded = false);
GemmStep shared_columns_step(const GemmSpec& spec, int64_t cols, bool rounded = false);
// The text that publishes a thread block's partial sums to the others (CudaStep::publish).
std::string shared_sums_publish(const GemmSpec& spec, int64_t cols, bool rounded = false);

}  // namespace lockstep
