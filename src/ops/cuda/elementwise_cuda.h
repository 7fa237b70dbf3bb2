// Elementwise programs as tasks and steps: alone, or as the epilogue of another computation. Safe from any thread.
#pragma once

#include <functional>
#include <optional>

#include "ops/cuda/gemm_text.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/task.h"

namespace lockstep {

// Tasks that compute independent elements of a result of this shape: their ranges, without `own`; and how a task divides
// the elements, with at most `most` in flight per thread. Nothing if the task has fusions, another division, or no
// elements.
TaskTraits::Ranges element_ranges(const Shape& shape);
std::optional<CudaElements> task_elements(const GpuTask& task, const Shape& shape, int64_t most);

// `approximate`: see element_finish().
CudaStep elementwise_step(const Program& body, bool approximate = false);

// The program as a source (step.h), with some of its inputs computed by other sources. Returns nullopt if it has
// several results or needs other elements of those inputs than its own. Approximate, as described below.
std::optional<CudaSource> elementwise_source(const Program& body, const std::vector<ComputedOperand>& computed);

// The inputs of which a range of the results along their first dimension needs only the same range; the inputs of which
// an element of the results needs only the same element.
std::vector<size_t> own_inputs(const Program& body);
std::vector<size_t> in_place_inputs(const Program& body);

// `body` as an epilogue: its first input is element `i` of a computed value, `x`, in the register type. reads(i, r)
// loads the other inputs into a structure Read; finish(i, x, r) stores the results. Both use the parameters that
// add_body_parameters() adds: the operands from `operand` on, and the results.
struct ElementFinish {
  std::string fields, reads, finish;  // the members of Read, and the texts of the two functions
};
// Returns nullopt if the program needs other elements of `x` than its own. `approximate`: divisions and square roots
// may be off by 2 ulp, tanh by 5 ulp, tanh in bf16 by 1 ulp. `vector_width`: the number of consecutive elements per
// call; if above 1, `x` is an array.
std::optional<ElementFinish> element_finish(const Program& body, bool approximate = false, int vector_width = 1);
void add_body_parameters(CudaStep& step, const Program& body, size_t operand,
                         const std::vector<ComputedOperand>& computed = {});

// Makes `step` a product of its parameters `a` and `b`, the only ones it has, followed by `body` on each
// element of the product, its first input. The other inputs are the operands from `operand` on; those in
// `computed` are computed by sources that have `one`. Returns false, and changes nothing, if the program needs
// other elements of the product than its own.
bool add_finish(CudaStep& step, const GemmStep& product, const Program& body, size_t operand,
                const std::vector<ComputedOperand>& computed = {});

// Computes a value from the first `own` operands, and then runs `body` on it and the other operands in a second kernel.
Kernel then_body(std::function<void(const void* const* in, void* out)> compute, size_t own, const Program& body,
                 const KernelSpec& spec);

}  // namespace lockstep
