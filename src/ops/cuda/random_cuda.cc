// Random bits on the GPU, the same as on the CPU.
#include "ops/cuda/kernels.h"
#include "ops/cuda/task.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

// A step with one element `i` per thread.
CudaStep random_step(int64_t n) {
  CudaStep step;
  step.name = "random";
  step.prelude = "#include \"threefry.cuh\"\nusing namespace lockstep;\n";
  step.body = fmt::format("  const uint64_t i = uint64_t(block) * {}u + threadIdx.x;\n  if (i >= {}ull) return;\n",
                          kStepThreads, n);
  step.blocks = (n + kStepThreads - 1) / kStepThreads;
  return step;
}

// Whether the task is a complete row with the only division that there is.
bool is_supported(const GpuTask& task) {
  return is_plain_row(task) && task.stage == TaskStage::whole && task.division == TaskDivision::tiles;
}

std::optional<CudaStep> random_bits_step(const GpuTask& task, const GpuTarget&) {
  const int64_t n = count(task.out[0].type.shape);
  if (n == 0 || !is_supported(task)) return {};
  const Shape& shape = task.attrs.ints("shape");
  const Shape global_shape = task.attrs.get_or("global_shape", shape);
  const Dims starts = task.attrs.get_or("starts", Dims(shape.size(), 0));
  const Dims strides = dense_strides(shape), global_strides = dense_strides(global_shape);
  std::string at = "0";
  for (size_t d = 0; d < shape.size(); ++d)
    at += fmt::format(" + (r / {}ull % {}ull + {}ull) * {}ull", strides[d], shape[d], starts[d], global_strides[d]);
  CudaStep step = random_step(n);
  step.parameters = "const uint32_t* keys, uint32_t* out";
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
  step.body += fmt::format(
      "  const uint64_t r = i % {}ull, counter = {};\n"
      "  uint32_t x0 = uint32_t(counter >> 32), x1 = uint32_t(counter);\n"
      "  threefry(keys + 2 * (i / {}ull), x0, x1);\n  out[i] = x0 ^ x1;\n",
      count(shape), at, count(shape));
  return step;
}

std::optional<CudaStep> threefry_step(const GpuTask& task, const GpuTarget&) {
  const Type &keys = task.in[0].type, &counters = task.in[1].type;
  const int64_t n = count(counters.shape);
  if (n == 0 || !is_supported(task)) return {};
  const int64_t per_key = extent(counters.shape, keys.rank() - 1, counters.rank());
  CudaStep step = random_step(n);
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
  return step;
}

}  // namespace

constinit const CudaTaskKind random_bits_task = {.step = random_bits_step};
constinit const CudaTaskKind threefry_task = {.step = threefry_step};

Kernel random_bits_cuda(const KernelSpec& spec) { return launch_alone(random_bits_task, task_of(spec), *spec.cuda); }
Kernel threefry_cuda(const KernelSpec& spec) { return launch_alone(threefry_task, task_of(spec), *spec.cuda); }

}  // namespace lockstep
