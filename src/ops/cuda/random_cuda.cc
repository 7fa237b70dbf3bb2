// Random bits on the GPU, the same as on the CPU.
#include "ops/cuda/kernels.h"
#include "ops/cuda/task.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

// A step with the elements from `i` on, `of_thread` of n, per thread.
CudaStep random_step(const char* cipher, int64_t n, int64_t of_thread = 1) {
  CudaStep step;
  step.name = "random";
  step.prelude = fmt::format("#include \"{}.cuh\"\nusing namespace lockstep;\n", cipher);
  step.body =
      fmt::format("  const uint64_t i = (uint64_t(block) * {}u + threadIdx.x) * {}u;\n  if (i >= {}ull) return;\n",
                  kStepThreads, of_thread, n);
  step.blocks = (n + kStepThreads * of_thread - 1) / (kStepThreads * of_thread);
  return step;
}

// Whether the task is a complete row with the only division that there is.
bool is_supported(const GpuTask& task) {
  return is_plain_row(task) && task.stage == TaskStage::whole && task.division == TaskDivision::tiles;
}

// The bits of a key as a part of a larger array.
struct Part {
  Shape shape, global_shape;
  Dims starts;

  explicit Part(const Attrs& attrs)
      : shape(attrs.ints("shape")),
        global_shape(attrs.get_or("global_shape", shape)),
        starts(attrs.get_or("starts", Dims(shape.size(), 0))) {}

  // The index in the larger array of element `r` of the part.
  std::string index() const {
    const Dims strides = dense_strides(shape), global_strides = dense_strides(global_shape);
    std::string text = "0";
    for (size_t d = 0; d < shape.size(); ++d)
      text += fmt::format(" + (r / {}ull % {}ull + {}ull) * {}ull", strides[d], shape[d], starts[d], global_strides[d]);
    return text;
  }

  // Whether every four elements from a multiple of four on are one block of the larger array.
  bool has_blocks() const {
    size_t inner = shape.size();  // the dimensions from here on are complete
    while (inner > 0 && shape[inner - 1] == global_shape[inner - 1]) --inner;
    const size_t outer = inner == 0 ? 0 : inner - 1;
    const Dims global_strides = dense_strides(global_shape);
    const auto rank = static_cast<int64_t>(shape.size());
    const bool has_runs = extent(shape, 0, static_cast<int64_t>(outer)) > 1;
    if (has_runs && extent(shape, static_cast<int64_t>(outer), rank) % 4 != 0) return false;
    for (size_t d = 0; d < shape.size(); ++d)
      if (starts[d] * global_strides[d] % 4 != 0 || (d < outer && shape[d] > 1 && global_strides[d] % 4 != 0))
        return false;
    return true;
  }
};

// Each thread computes four elements: one block, or parts of two or more.
CudaStep philox_step(const Part& part, int64_t n) {
  const int64_t per_key = count(part.shape);
  CudaStep step = random_step("philox", n, 4);
  if (part.has_blocks() && (per_key == n || per_key % 4 == 0)) {
    step.body += fmt::format(
        "  const uint64_t r = i % {0}ull, counter = {1};\n"
        "  uint32_t x[4];\n  philox(keys + 4 * (i / {0}ull), counter / 4, x);\n  store_philox(out + i, x, {2}ull - "
        "i);\n",
        per_key, part.index(), n);
    return step;
  }
  step.body += fmt::format(
      "  uint32_t x[4];\n  uint64_t last_key = ~0ull, last_block = ~0ull;\n"
      "#pragma unroll\n  for (uint64_t j = i; j < i + 4; ++j) {{\n    if (j >= {2}ull) return;\n"
      "    const uint64_t r = j % {0}ull, counter = {1}, key = j / {0}ull;\n"
      "    if (key != last_key || counter / 4 != last_block) philox(keys + 4 * key, counter / 4, x);\n"
      "    last_key = key;\n    last_block = counter / 4;\n"
      "    out[j] = philox_word(x, uint32_t(counter % 4));\n  }}\n",
      per_key, part.index(), n);
  return step;
}

CudaStep threefry_bits_step(const Part& part, int64_t n) {
  CudaStep step = random_step("threefry", n);
  step.body += fmt::format(
      "  const uint64_t r = i % {0}ull, counter = {1};\n"
      "  uint32_t x0 = uint32_t(counter >> 32), x1 = uint32_t(counter);\n"
      "  threefry(keys + 2 * (i / {0}ull), x0, x1);\n  out[i] = x0 ^ x1;\n",
      count(part.shape), part.index());
  return step;
}

std::optional<CudaStep> random_bits_step(const GpuTask& task, const GpuTarget&) {
  const int64_t n = count(task.out[0].type.shape);
  if (n == 0 || !is_supported(task)) return {};
  const bool is_philox = task.in[0].type.shape.back() == 4;
  CudaStep step = is_philox ? philox_step(Part(task.attrs), n) : threefry_bits_step(Part(task.attrs), n);
  step.parameters = "const uint32_t* keys, uint32_t* out";
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
  return step;
}

std::optional<CudaStep> threefry_step(const GpuTask& task, const GpuTarget&) {
  const Type &keys = task.in[0].type, &counters = task.in[1].type;
  const int64_t n = count(counters.shape);
  if (n == 0 || !is_supported(task)) return {};
  const int64_t per_key = extent(counters.shape, keys.rank() - 1, counters.rank());
  CudaStep step = random_step("threefry", n);
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
