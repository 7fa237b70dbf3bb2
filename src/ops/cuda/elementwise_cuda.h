// Elementwise programs as steps (step.h), alone or as what is made of the elements of a matrix product.
#pragma once

#include "ops/cuda/gemm_text.h"
#include "ops/cuda/step.h"

namespace lockstep {

CudaStep elementwise_step(const Program& body);
CudaRanges elementwise_ranges(const Program& body);

// The inputs of which a range of the results along their first dimension needs its own range only.
std::vector<size_t> own_inputs(const Program& body);

// Makes `step` a product of its parameters `a` and `b` with `body` done to each element, the first input; the others
// are the operands from `operand` on. Returns false, and changes nothing, where the program wants other elements of the
// product than its own.
bool add_finish(CudaStep& step, const GemmStep& product, const Program& body, size_t operand);

}  // namespace lockstep
