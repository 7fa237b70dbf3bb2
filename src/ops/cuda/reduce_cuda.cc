// Reductions on the GPU. A thread block computes a few results from a range of the reduced elements. If there are too
// few results to keep the GPU busy, the ranges are reduced in parallel, and then their results. The order in which
// elements are combined depends only on the shape.
#include <algorithm>
#include <bit>

#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

constexpr int kReduceThreads = kStepThreads;
constexpr int64_t kReduceBlocks = 512;  // thread blocks; enough for any GPU
constexpr int64_t kReduceWide = 128;    // the same if each has four times as much in flight
constexpr int64_t kReduceTogether = 16;
constexpr int64_t kReduceStretch = kReduceThreads * kReduceTogether;  // elements too few for another thread block
constexpr int64_t kReduceFew = 4096;                                  // elements for which one thread block is enough

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
  if (out.results <= kReduceThreads && out.results * out.length <= kReduceFew) {
    out.across = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(out.results, 1))));
    return out;
  }
  // Adjacent threads should read adjacent elements (coalescing).
  const bool rows = !split.at_gone.strides.empty() && split.at_gone.strides.back() == 1;
  out.across = rows ? (out.length >= 128 ? 1 : out.length >= 32 ? 8 : 32) : 32;
  if (!rows && out.results * out.length >= kReduceWide * kReduceStretch && reads_four(split, dtype)) out.wide = 4;
  const int64_t blocks = std::max<int64_t>((out.results + out.of_block() - 1) / out.of_block(), 1);
  const int64_t most = std::max<int64_t>(out.length * out.of_block() / kReduceStretch, 1);
  out.splits = std::clamp<int64_t>((out.wide > 1 ? kReduceWide : kReduceBlocks) / blocks, 1, most);
  return out;
}

// The text that reduces the elements of each thread to `sums`.
std::string thread_sums_text(const Texts& t, const Axes& split, const ReduceLayout& l, DType from) {
  const int down = kReduceThreads / l.across;
  const int64_t stretch = (l.length + l.splits - 1) / l.splits;
  // Elements that a thread has in flight.
  const int64_t together = std::clamp<int64_t>((stretch + down - 1) / down, 1,
                                               l.wide * size_of(from) > 8 ? kReduceTogether / 2 : kReduceTogether);
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

// Range by range: rows by warps. If the first dimension is reduced: all columns of a range at a time, or as many as
// leave a few threads for each.
CudaRanges ranges_of(const Texts& t, const Axes& split, const Shape& shape, const Dims& axes, DType dtype) {
  constexpr int64_t kColumns = 16, kMostColumns = 128, kMostRows = 1024;
  const int64_t results = count(split.kept), length = count(split.gone);
  if (split.kept.empty() || length == 0) return {};
  const auto rows = [=](int warps) {
    return [=](int64_t ranges) {
      CudaStep step = row_step(t, split, dtype, results / ranges, length, warps);
      step.blocks = ranges;
      return step;
    };
  };
  if (!contains(axes, 0))
    return {.most = shape[0],
            .least = CudaElements::least_ranges(results * length),
            .own = {0},
            .step = rows(kReduceThreads / 32),
            .by_warp = rows(1)};
  if (length > kMostRows || results % kColumns != 0) return {};
  return {
      .most = results / kColumns,
      .least = CudaElements::least_ranges(results * length),
      .own = {},
      .step = [=](int64_t ranges) {
        const int64_t columns = results / ranges;
        int64_t across = kColumns;
        while (across < kMostColumns && columns % (2 * across) == 0) across *= 2;
        const ReduceLayout layout{.across = static_cast<int>(across), .results = results, .length = length};
        CudaStep step = step_of(t, split, layout, dtype, memory_type(dtype));
        step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
        step.blocks = ranges;
        step.body = fmt::format(
            "  for (uint32_t c = 0; c < {n}u; ++c) [&](const uint32_t block) {{\n{body}  __syncthreads();\n  }}(block "
            "* {n}u + c);\n",
            fmt::arg("n", columns / across), fmt::arg("body", step.body));
        return step;
      }};
}

}  // namespace

Kernel reduce_kernel_cuda(ReduceKind r, const KernelSpec& spec) {
  using Argument = CudaStep::Argument;
  const DType dtype = spec.in[0].dtype;
  const Axes split(spec.in[0].shape, spec.attrs.ints("axes"));
  const ReduceLayout layout = layout_of(split, dtype);
  if (layout.results == 0) return [](const void* const*, void* const*) {};
  const Texts texts = texts_of(r, dtype);
  CudaRanges ranges = ranges_of(texts, split, spec.in[0].shape, spec.attrs.ints("axes"), dtype);
  SteppedWays ways{.ranges = std::move(ranges)};
  if (r == ReduceKind::sum && dtype == DType::f32 && layout.results == 1)
    ways.of_added_up = [texts, lane = spec.cuda] {
      const Axes all({kPartialSums}, {0});
      CudaStep step = step_of(texts, all, layout_of(all, DType::f32), DType::f32, "float");
      step.arguments = {{Argument::operand, 0}, {Argument::result, 0}};
      return SteppedKernel(lane, {std::move(step)});
    };
  if (r == ReduceKind::sum && (dtype == DType::f32 || is_16_bit(dtype)) && spec.in[0].rank() == 2 &&
      spec.attrs.ints("axes") == Dims{0})
    ways.adds_columns = spec.in[0];
  if (layout.splits == 1) {
    CudaStep step = step_of(texts, split, layout, dtype, memory_type(dtype));
    step.arguments = {{Argument::operand, 0}, {Argument::result, 0}};
    return SteppedKernel(spec.cuda, {std::move(step)}, {}, std::move(ways));
  }
  // Partial results have the register type: f32 for 16-bit floats.
  const DType wide = dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
  CudaStep first = step_of(texts, split, layout, dtype, register_name(dtype));
  first.arguments = {{Argument::operand, 0}, {Argument::own, 0}};
  const Axes rest({layout.splits, layout.results}, {0});
  ReduceLayout last = layout_of(rest, wide);
  last.splits = 1;
  CudaStep second = step_of(texts, rest, last, wide, memory_type(dtype));
  second.arguments = {{Argument::own, 0}, {Argument::result, 0}};
  return SteppedKernel(spec.cuda, {std::move(first), std::move(second)},
                       {spec.cuda->allocate(layout.splits * layout.results * size_of(wide))}, std::move(ways));
}

// One warp per result, or one thread if there are few elements.
Kernel arg_kernel_cuda(bool greatest, const KernelSpec& spec) {
  const Type& x = spec.in[0];
  const auto axis = static_cast<size_t>(spec.attrs.integer("axis"));
  const int64_t n = x.shape[axis], inner = dense_strides(x.shape)[axis], results = count(spec.out[0].shape);
  if (results == 0) return [](const void* const*, void* const*) {};
  CudaStep step;
  step.name = "arg";
  step.prelude = "#include \"elements.cuh\"\nusing namespace lockstep;\n";
  step.parameters = fmt::format("const {}* in, int32_t* out", memory_type(x.dtype));
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::result, 0}};
  constexpr int64_t kAlone = 16;
  const int64_t lanes = n <= kAlone ? 1 : 32, at_once = kReduceThreads / lanes;
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
      fmt::arg("inner", inner), fmt::arg("beyond", greatest ? ">" : "<"),
      fmt::arg("shuffled", x.dtype == DType::boolean || x.dtype == DType::u8 ? "int(best)" : "best"));
  return SteppedKernel(spec.cuda, {std::move(step)});
}

}  // namespace lockstep
