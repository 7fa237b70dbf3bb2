// Random bits on the GPU, the same as on the CPU.
#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

// A step with one element `i` per thread.
CudaStep per_element(int64_t n) {
  CudaStep step;
  step.name = "random";
  step.prelude = "#include \"threefry.cuh\"\nusing namespace lockstep;\n";
  step.body = fmt::format("  const uint64_t i = uint64_t(block) * {}u + threadIdx.x;\n  if (i >= {}ull) return;\n",
                          kStepThreads, n);
  step.blocks = (n + kStepThreads - 1) / kStepThreads;
  return step;
}

}  // namespace

Kernel random_bits_cuda(const KernelSpec& spec) {
  const int64_t n = count(spec.out[0].shape);
  if (n == 0) return [](const void* const*, void* const*) {};
  const Shape& shape = spec.attrs.ints("shape");
  const Shape global_shape = spec.attrs.get_or("global_shape", shape);
  const Dims starts = spec.attrs.get_or("starts", Dims(shape.size(), 0));
  const Dims strides = dense_strides(shape), global_strides = dense_strides(global_shape);
  std::string at = "0";
  for (size_t d = 0; d < shape.size(); ++d)
    at += fmt::format(" + (r / {}ull % {}ull + {}ull) * {}ull", strides[d], shape[d], starts[d], global_strides[d]);
  CudaStep step = per_element(n);
  step.parameters = "const uint32_t* keys, uint32_t* out";
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
  step.body += fmt::format(
      "  const uint64_t r = i % {}ull, counter = {};\n"
      "  uint32_t x0 = uint32_t(counter >> 32), x1 = uint32_t(counter);\n"
      "  threefry(keys + 2 * (i / {}ull), x0, x1);\n  out[i] = x0 ^ x1;\n",
      count(shape), at, count(shape));
  return SteppedKernel(spec.cuda, {std::move(step)});
}

Kernel threefry_cuda(const KernelSpec& spec) {
  const int64_t n = count(spec.in[1].shape);
  if (n == 0) return [](const void* const*, void* const*) {};
  const int64_t per_key = extent(spec.in[1].shape, spec.in[0].rank() - 1, spec.in[1].rank());
  CudaStep step = per_element(n);
  step.parameters = "const uint32_t* keys, const uint32_t* hi, const uint32_t* lo, uint32_t* out0, uint32_t* out1";
  using Argument = CudaStep::Argument;
  step.arguments = {{Argument::operand, 0},
                    {Argument::operand, 1},
                    {Argument::operand, 2},
                    {Argument::result, 0},
                    {Argument::result, 1}};
  step.body += fmt::format(
      "  uint32_t x0 = hi[i], x1 = lo[i];\n  threefry(keys + 2 * (i / {}ull), x0, x1);\n"
      "  out0[i] = x0;\n  out1[i] = x1;\n",
      per_key);
  return SteppedKernel(spec.cuda, {std::move(step)});
}

}  // namespace lockstep
