// Elementwise programs as steps (step.h), alone or as what is made of the elements of something else.
#pragma once

#include <functional>
#include <optional>

#include "ops/cuda/gemm_text.h"
#include "ops/cuda/step.h"

namespace lockstep {

// `quick`: see element_finish().
CudaStep elementwise_step(const Program& body, bool quick = false);
CudaRanges elementwise_ranges(const Program& body);

// Some of whose inputs are computed by others. Nothing where it has several results, or wants other elements of those
// than its own. For who cuts them short: as `quick` says below.
std::optional<CudaSource> elementwise_source(const Program& body, const std::vector<CudaSourced>& computed);

// The inputs of which a range of the results along their first dimension needs its own range only; and an element, its
// own element.
std::vector<size_t> own_inputs(const Program& body);
std::vector<size_t> in_place_inputs(const Program& body);

// What `body` does to each element `i` of something that was computed, which is its first input, `x`, of the register
// type: reads(i, r) reads what else it needs to a Read, finish(i, x, r) stores the results. Both are to be defined
// where parameters are that add_body_parameters() has added: operands from `operand` on, and results.
struct ElementFinish {
  std::string fields, reads, finish;  // members of Read, and texts of the two
};
// Nothing where the program wants other elements than its own. `quick`: divisions and roots may be within 2 ulp, tanh
// within 5, of bf16 within 1.
// `side`: of so many elements side by side at a time, `x` an array.
std::optional<ElementFinish> element_finish(const Program& body, bool quick = false, int side = 1);
void add_body_parameters(CudaStep& step, const Program& body, size_t operand,
                         const std::vector<CudaSourced>& computed = {});

// Makes `step` a product of its parameters `a` and `b`, the only ones so far, with `body` done to each element, the
// first input; the others are the operands from `operand` on, of which `computed` are, by sources that have `one`.
// Returns false, and changes nothing, where the program wants other elements of the product than its own.
bool add_finish(CudaStep& step, const GemmStep& product, const Program& body, size_t operand,
                const std::vector<CudaSourced>& computed = {});

// Computes something of the first `own` operands, and then `body` of it and of the others, in a kernel of its own.
Kernel then_body(std::function<void(const void* const* in, void* out)> compute, size_t own, const Program& body,
                 const KernelSpec& spec);

}  // namespace lockstep
