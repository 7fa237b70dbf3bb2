// Reductions on the GPU. A thread block computes a few results from a range of the reduced elements. If there are too
// few results to keep the GPU busy, the ranges are reduced in parallel, and then their results. The order in which
// elements are combined depends only on the shape.
#include <algorithm>
#include <bit>

#include "ops/cuda/cost_model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/task.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

using cost_model::kReduceElementsPerBlock, cost_model::kReduceElementsPerThread;

constexpr int kReduceThreads = kStepThreads;

struct Texts {
  const char* combine;   // of a and b
  std::string identity;  // of the register type
};

Texts texts_of(ReduceKind r, DType dtype) {
  const char* type = register_name(dtype);
  const bool real = is_floating(dtype);
  switch (r) {
    case ReduceKind::sum:
      return {"math::add(a, b)", fmt::format("{}(0)", type)};
    case ReduceKind::prod:
      return {"math::mul(a, b)", fmt::format("{}(1)", type)};
    case ReduceKind::max:
      return {"math::maximum(a, b)", dtype == DType::boolean ? "false"
                                     : real                  ? fmt::format("-{}(math::kInf)", type)
                                                             : fmt::format("math::kLowest<{}>", type)};
    case ReduceKind::min:
      return {"math::minimum(a, b)", dtype == DType::boolean ? "true"
                                     : real                  ? fmt::format("{}(math::kInf)", type)
                                                             : fmt::format("math::kHighest<{}>", type)};
    case ReduceKind::all:
      return {"a && b", "true"};
    case ReduceKind::any:
      break;
  }
  return {"a || b", "false"};
}

// The kept and the reduced dimensions, each as a view of the operand.
struct Axes {
  Shape kept, gone;
  View at_kept, at_gone;

  Axes(const Shape& shape, const Dims& axes) {
    const Dims strides = dense_strides(shape);
    for (size_t d = 0; d < shape.size(); ++d) {
      const bool out = contains(axes, static_cast<int64_t>(d));
      (out ? gone : kept).push_back(shape[d]);
      (out ? at_gone : at_kept).strides.push_back(strides[d]);
    }
  }
};

// How the threads of a block are divided: `across` x `wide` adjacent results, and the rest along the reduced elements.
struct ReduceLayout {
  int across = 1;
  int64_t results = 0, length = 0, splits = 1, wide = 1;
  int64_t of_block() const { return across * wide; }
  int64_t blocks() const { return (results + of_block() - 1) / of_block() * splits; }
};

// Whether four aligned results read four aligned, consecutive elements.
bool reads_four(const Axes& split, DType dtype) {
  const auto is_whole = [](int64_t stride) { return stride % 4 == 0; };
  const Dims &kept = split.at_kept.strides, &gone = split.at_gone.strides;
  return size_of(dtype) <= 4 && !kept.empty() && kept.back() == 1 && split.kept.back() % 4 == 0 &&
         std::all_of(kept.begin(), kept.end() - 1, is_whole) && std::all_of(gone.begin(), gone.end(), is_whole);
}

ReduceLayout layout_of(const Axes& split, DType dtype) {
  ReduceLayout out;
  out.results = count(split.kept);
  out.length = count(split.gone);
  if (out.results <= kReduceThreads && out.results * out.length <= cost_model::kReduceInOneBlock) {
    out.across = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(out.results, 1))));
    return out;
  }
  // Adjacent threads should read adjacent elements (coalescing).
  const bool rows = !split.at_gone.strides.empty() && split.at_gone.strides.back() == 1;
  out.across = rows ? (out.length >= cost_model::kReduceLongRow    ? 1
                       : out.length >= cost_model::kReduceShortRow ? 8
                                                                   : 32)
                    : 32;
  if (!rows && out.results * out.length >= cost_model::kReduceVectorBlocks * kReduceElementsPerBlock &&
      reads_four(split, dtype))
    out.wide = 4;
  const int64_t blocks = std::max<int64_t>((out.results + out.of_block() - 1) / out.of_block(), 1);
  const int64_t most = std::max<int64_t>(out.length * out.of_block() / kReduceElementsPerBlock, 1);
  out.splits = std::clamp<int64_t>(
      (out.wide > 1 ? cost_model::kReduceVectorBlocks : cost_model::kReduceBlocks) / blocks, 1, most);
  return out;
}

// The text that reduces the elements of each thread to `sums`.
std::string thread_sums_text(const Texts& t, const Axes& split, const ReduceLayout& l, DType from) {
  const int down = kReduceThreads / l.across;
  const int64_t stretch = (l.length + l.splits - 1) / l.splits;
  // Elements that a thread has in flight.
  const int64_t together =
      std::clamp<int64_t>((stretch + down - 1) / down, 1,
                          l.wide * size_of(from) > 8 ? kReduceElementsPerThread / 2 : kReduceElementsPerThread);
  return fmt::format(
      R"(  {type}* const part = reinterpret_cast<{type}*>(shared);
  const uint32_t tx = threadIdx.x % {across}u, ty = threadIdx.x / {across}u;
  const uint64_t o = (uint64_t(block / {splits}u) * {across}u + tx) * {wide}u, s = block % {splits}u;
  const uint64_t end = (s + 1) * {stretch}u < {length}u ? (s + 1) * {stretch}u : {length}u;
  {type} sums[{wide}];
  const auto combine = [](const {type} a, const {type} b) -> {type} {{ return {combine}; }};
#pragma unroll
  for (int q = 0; q < {wide}; ++q) sums[q] = {identity};
  if (o < {results}u) {{
    const {memory}* from = in + ({kept});
    for (uint64_t first = s * {stretch}u + ty; first < end; first += {together}u * {down}u) {{
      Side<{memory}, {wide}> all[{together}];
#pragma unroll
      for (uint32_t u = 0; u < {together}u; ++u) {{
        const uint64_t r = first + u * {down}u < end ? first + u * {down}u : first;
        all[u] = *reinterpret_cast<const Side<{memory}, {wide}>*>(from + ({gone}));
      }}
#pragma unroll
      for (uint32_t u = 0; u < {together}u; ++u) {{
        if (first + u * {down}u >= end) continue;
#pragma unroll
        for (int q = 0; q < {wide}; ++q) sums[q] = combine(sums[q], load(all[u].v[q]));
      }}
    }}
  }}
)",
      fmt::arg("wide", l.wide), fmt::arg("memory", memory_type(from)), fmt::arg("type", register_name(from)),
      fmt::arg("across", l.across), fmt::arg("splits", l.splits), fmt::arg("stretch", stretch),
      fmt::arg("length", l.length), fmt::arg("results", l.results), fmt::arg("down", down),
      fmt::arg("together", together), fmt::arg("identity", t.identity), fmt::arg("combine", t.combine),
      fmt::arg("kept", position_text(split.at_kept, split.kept, "o")),
      fmt::arg("gone", position_text(split.at_gone, split.gone, "r")));
}

// The text that reduces the `sums` of the threads of a block through shared memory and stores the results.
std::string block_sums_text(const ReduceLayout& l, DType from, const char* to) {
  return fmt::format(
      R"(#pragma unroll
  for (int q = 0; q < {wide}; ++q) part[q * {threads}u + threadIdx.x] = sums[q];
  for (uint32_t half = {down}u / 2; half > 0; half /= 2) {{
    __syncthreads();
    if (ty >= half) continue;
#pragma unroll
    for (int q = 0; q < {wide}; ++q) {{
      {type}* const own = part + q * {threads}u + threadIdx.x;
      *own = sums[q] = combine(sums[q], own[half * {across}u]);
    }}
  }}
  if (ty == 0 && o < {results}u)
    for (int q = 0; q < {wide}; ++q) out[s * {results}u + o + q] = Store<{to}>::of(sums[q]);
)",
      fmt::arg("wide", l.wide), fmt::arg("threads", kReduceThreads), fmt::arg("to", to),
      fmt::arg("type", register_name(from)), fmt::arg("across", l.across), fmt::arg("results", l.results),
      fmt::arg("down", kReduceThreads / l.across));
}

// Reduces `in` to `out`, with elements of the types `from` and `to` in memory.
CudaStep step_of(const Texts& t, const Axes& split, const ReduceLayout& l, DType from, const char* to) {
  CudaStep step;
  step.name = "reduce";
  step.prelude = "#include \"elements.cuh\"\nusing namespace lockstep;\n";
  step.parameters = fmt::format("const {}* in, {}* out", memory_type(from), to);
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
  step.blocks = l.blocks();
  step.shared_bytes = kReduceThreads * l.wide * size_of(is_16_bit(from) ? DType::f32 : from);
  step.body = thread_sums_text(t, split, l, from) + block_sums_text(l, from, to);
  return step;
}

// One result per warp, for `warps` warps, if ranges of the operand's first dimension are ranges of the results.
CudaStep row_step(const Texts& t, const Axes& split, DType dtype, int64_t results, int64_t length, int warps) {
  CudaStep step;
  step.name = "reduce";
  step.prelude = "#include \"elements.cuh\"\nusing namespace lockstep;\n";
  step.parameters = fmt::format("const {}* in, {}* out", memory_type(dtype), memory_type(dtype));
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
  step.body = fmt::format(
      R"(  for (uint32_t k = threadIdx.x / 32u % {warps}u; k < {results}u; k += {warps}u) {{
    const uint64_t o = uint64_t(block) * {results}u + k;
    const {memory}* from = in + ({kept});
    {type} a = {identity};
    for (uint32_t r = threadIdx.x % 32u; r < {length}u; r += 32u) {{
      const {type} b = load(from[{gone}]);
      a = {combine};
    }}
    for (int d = 16; d > 0; d /= 2) {{
      const {type} b = {type}(__shfl_xor_sync(0xffffffffu, {shuffled}, d));
      a = {combine};
    }}
    if (threadIdx.x % 32u == 0) out[o] = Store<{memory}>::of(a);
  }}
)",
      fmt::arg("memory", memory_type(dtype)), fmt::arg("type", register_name(dtype)), fmt::arg("results", results),
      fmt::arg("length", length), fmt::arg("warps", warps), fmt::arg("identity", t.identity),
      fmt::arg("combine", t.combine), fmt::arg("shuffled", size_of(dtype) == 1 ? "int(a)" : "a"),
      fmt::arg("kept", position_text(split.at_kept, split.kept, "o")),
      fmt::arg("gone", position_text(split.at_gone, split.gone, "r")));
  return step;
}

// A task's reduction.
struct TaskReduction {
  DType dtype;
  const Shape& shape;
  const Dims axes;
  Axes split;
  ReduceLayout layout;

  explicit TaskReduction(const GpuTask& task)
      : dtype(task.in[0].type.dtype),
        shape(task.in[0].type.shape),
        axes(task.stage == TaskStage::combine ? Dims{0} : task.attrs.ints("axes")),
        split(shape, axes),
        layout(layout_of(split, dtype)) {
    if (task.stage == TaskStage::combine) layout.splits = 1;
  }

  // Partial results have the register type: f32 for 16-bit floats.
  Type partial() const { return {is_16_bit(dtype) ? DType::f32 : dtype, {layout.splits, layout.results}}; }
  bool along_rows() const { return !contains(axes, 0); }
};

TaskTraits::Ranges ranges_of(const TaskReduction& r) {
  const int64_t results = r.layout.results, length = r.layout.length;
  if (r.split.kept.empty() || results == 0 || length == 0) return {};
  const int64_t least = CudaElements::least_ranges(results * length);
  if (r.along_rows()) return {.most = r.shape[0], .least = least, .own = {0}, .by_warp = true};
  if (length > cost_model::kMostRangeRows || results % cost_model::kRangeColumns != 0) return {};
  return {.most = results / cost_model::kRangeColumns, .least = least, .own = {}};
}

// If the first dimension is reduced: all columns of a range at a time, or as many as leave a few threads for each.
CudaStep columns_step(const Texts& t, const TaskReduction& r, int64_t ranges) {
  const int64_t columns = r.layout.results / ranges;
  int64_t across = cost_model::kRangeColumns;
  while (across < cost_model::kMostRangeColumns && columns % (2 * across) == 0) across *= 2;
  const ReduceLayout layout{.across = static_cast<int>(across), .results = r.layout.results, .length = r.layout.length};
  CudaStep step = step_of(t, r.split, layout, r.dtype, memory_type(r.dtype));
  step.blocks = ranges;
  step.body = fmt::format(
      "  for (uint32_t c = 0; c < {n}u; ++c) [&](const uint32_t block) {{\n{body}  __syncthreads();\n  }}(block "
      "* {n}u + c);\n",
      fmt::arg("n", columns / across), fmt::arg("body", step.body));
  return step;
}

// Range by range, or rows by warps.
std::optional<CudaStep> divided_step(const Texts& t, const TaskReduction& r, const GpuTask& task) {
  if (task.stage != TaskStage::whole || !ranges_of(r).supports(task.division, task.count)) return {};
  if (!r.along_rows()) return columns_step(t, r, task.count);
  const int warps = task.division == TaskDivision::warps ? 1 : kReduceThreads / 32;
  CudaStep step = row_step(t, r.split, r.dtype, r.layout.results / task.count, r.layout.length, warps);
  step.blocks = task.count;
  return step;
}

template <ReduceKind kR>
std::optional<CudaStep> reduce_step(const GpuTask& task, const GpuTarget&) {
  const TaskReduction r(task);
  if (r.layout.results == 0 || !is_plain_row(task)) return {};
  const Texts texts = texts_of(kR, r.dtype);
  if (task.division != TaskDivision::tiles) return divided_step(texts, r, task);
  if (task.stage == TaskStage::combine)
    return step_of(texts, r.split, r.layout, r.dtype, memory_type(task.out[0].type.dtype));
  if (r.layout.splits == 1 && task.stage == TaskStage::partial) return {};
  if (r.layout.splits == 1) return step_of(texts, r.split, r.layout, r.dtype, memory_type(r.dtype));
  CudaStep step = step_of(texts, r.split, r.layout, r.dtype, register_name(r.dtype));
  if (task.stage == TaskStage::whole) step.partial = r.partial();
  return step;
}

template <ReduceKind kR>
TaskTraits reduce_traits(const GpuTask& task, const GpuTarget&) {
  if (task.stage != TaskStage::whole) return {};
  const TaskReduction r(task);
  TaskTraits traits;
  traits.ranges = ranges_of(r);
  if (kR != ReduceKind::sum) return traits;
  traits.sums_all = r.dtype == DType::f32 && r.layout.results == 1;
  traits.sums_columns = (r.dtype == DType::f32 || is_16_bit(r.dtype)) && r.shape.size() == 2 && r.axes == Dims{0};
  return traits;
}

template <ReduceKind kR>
constexpr CudaTaskKind kReduceTask = {.step = reduce_step<kR>, .traits = reduce_traits<kR>};

}  // namespace

constinit const CudaTaskKind reduce_sum_task = kReduceTask<ReduceKind::sum>;
constinit const CudaTaskKind reduce_prod_task = kReduceTask<ReduceKind::prod>;
constinit const CudaTaskKind reduce_max_task = kReduceTask<ReduceKind::max>;
constinit const CudaTaskKind reduce_min_task = kReduceTask<ReduceKind::min>;
constinit const CudaTaskKind reduce_all_task = kReduceTask<ReduceKind::all>;
constinit const CudaTaskKind reduce_any_task = kReduceTask<ReduceKind::any>;

Kernel reduce_kernel_cuda(ReduceKind r, const KernelSpec& spec) {
  return launch_alone(*reduce_task(r), task_of(spec), *spec.cuda);
}

namespace {

// One warp per result, or one thread if there are few elements.
template <bool kGreatest>
std::optional<CudaStep> arg_step(const GpuTask& task, const GpuTarget&) {
  const Type& x = task.in[0].type;
  const auto axis = static_cast<size_t>(task.attrs.integer("axis"));
  const int64_t n = x.shape[axis], inner = dense_strides(x.shape)[axis], results = count(task.out[0].type.shape);
  if (results == 0 || !is_plain_row(task) || task.stage != TaskStage::whole || task.division != TaskDivision::tiles)
    return {};
  CudaStep step;
  step.name = "arg";
  step.prelude = "#include \"elements.cuh\"\nusing namespace lockstep;\n";
  step.parameters = fmt::format("const {}* in, int32_t* out", memory_type(x.dtype));
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
  const int64_t lanes = n <= cost_model::kArgElementsPerThread ? 1 : 32, at_once = kReduceThreads / lanes;
  step.blocks = (results + at_once - 1) / at_once;
  step.body = fmt::format(
      R"(  const uint64_t o = uint64_t(block) * {at_once}u + threadIdx.x / {lanes}u;
  if (o >= {results}u) return;
  const {memory}* from = in + o / {inner}u * {n}u * {inner}u + o % {inner}u;
  // A NaN is beyond everything; of equal elements the first counts.
  {type} best{{}};
  int32_t where = -1;
  for (uint32_t i = threadIdx.x % {lanes}u; i < {n}u; i += {lanes}u) {{
    const {type} x = load(from[uint64_t(i) * {inner}u]);
    const bool replaces = where < 0 || (best == best && (x {beyond} best || x != x));
    if (replaces) {{
      best = x;
      where = int32_t(i);
    }}
  }}
  for (int d = {lanes} / 2; d > 0; d /= 2) {{
    const {type} x = __shfl_down_sync(0xffffffffu, {shuffled}, d);
    const int32_t at = __shfl_down_sync(0xffffffffu, where, d);
    if (at < 0) continue;
    const bool nan_x = x != x, nan_best = best != best;
    const bool equal = (nan_x && nan_best) || x == best;
    if (where < 0 || (equal ? at < where : (nan_x || (!nan_best && x {beyond} best)))) {{
      best = x;
      where = at;
    }}
  }}
  if (threadIdx.x % {lanes}u == 0) out[o] = where;
)",
      fmt::arg("at_once", at_once), fmt::arg("lanes", lanes), fmt::arg("memory", memory_type(x.dtype)),
      fmt::arg("type", register_name(x.dtype)), fmt::arg("results", results), fmt::arg("n", n),
      fmt::arg("inner", inner), fmt::arg("beyond", kGreatest ? ">" : "<"),
      fmt::arg("shuffled", size_of(x.dtype) < 4 && !is_floating(x.dtype) ? "int(best)" : "best"));
  return step;
}

}  // namespace

constinit const CudaTaskKind argmax_task = {.step = arg_step<true>};
constinit const CudaTaskKind argmin_task = {.step = arg_step<false>};

Kernel arg_kernel_cuda(bool greatest, const KernelSpec& spec) {
  return launch_alone(greatest ? argmax_task : argmin_task, task_of(spec), *spec.cuda);
}

}  // namespace lockstep
