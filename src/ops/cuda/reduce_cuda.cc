// Reductions on the GPU. A block takes a few results and a stretch of what they are made of; where there are too few
// results to keep the GPU busy, stretches are reduced side by side and then their results. The order in which elements
// are combined depends on the shape only.
#include <algorithm>
#include <memory>

#include "lane/cuda/code.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 512;    // enough for any GPU
constexpr int64_t kStretch = 2048;  // elements that are not worth a block more

struct Texts {
  const char* combine;   // of a and b
  std::string identity;  // of the register type
};

Texts texts_of(Reduction r, DType dtype) {
  const char* type = register_name(dtype);
  const bool real = is_floating(dtype);
  switch (r) {
    case Reduction::sum:
      return {"math::add(a, b)", fmt::format("{}(0)", type)};
    case Reduction::prod:
      return {"math::mul(a, b)", fmt::format("{}(1)", type)};
    case Reduction::max:
      return {"math::maximum(a, b)", dtype == DType::boolean ? "false"
                                     : real                  ? fmt::format("-{}(math::kInf)", type)
                                                             : fmt::format("math::kLowest<{}>", type)};
    case Reduction::min:
      return {"math::minimum(a, b)", dtype == DType::boolean ? "true"
                                     : real                  ? fmt::format("{}(math::kInf)", type)
                                                             : fmt::format("math::kHighest<{}>", type)};
    case Reduction::all:
      return {"a && b", "true"};
    case Reduction::any:
      break;
  }
  return {"a || b", "false"};
}

// What is kept and what is reduced, each as a view of the operand.
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

// How the threads of a block are used: `across` results, and the rest along what is reduced.
struct Layout {
  int across = 1;
  int64_t results = 0, length = 0, splits = 1;
  int64_t blocks() const { return (results + across - 1) / across * splits; }
};

Layout layout_of(const Axes& split) {
  Layout out;
  out.results = count(split.kept);
  out.length = count(split.gone);
  // Threads side by side should read elements side by side.
  const bool rows = !split.at_gone.strides.empty() && split.at_gone.strides.back() == 1;
  out.across = rows ? (out.length >= 128 ? 1 : out.length >= 32 ? 8 : 32) : 32;
  const int64_t blocks = std::max<int64_t>((out.results + out.across - 1) / out.across, 1);
  const int64_t most = std::max<int64_t>(out.length * out.across / kStretch, 1);
  out.splits = std::clamp<int64_t>(kBlocks / blocks, 1, most);
  return out;
}

// `from` and `to` are types in memory.
std::string text_of(const Texts& t, const Axes& split, const Layout& l, DType from, const char* to) {
  const char* type = register_name(from);
  const int down = kThreads / l.across;
  const int64_t stretch = (l.length + l.splits - 1) / l.splits;
  return fmt::format(
      R"(#include "elements.h"
using namespace lockstep;
extern "C" __global__ void __launch_bounds__({threads}) f(const {memory}* in, {to}* out) {{
  __shared__ {type} part[{threads}];
  const uint32_t tx = threadIdx.x % {across}u, ty = threadIdx.x / {across}u;
  const uint64_t o = uint64_t(blockIdx.x / {splits}u) * {across}u + tx, s = blockIdx.x % {splits}u;
  const uint64_t end = (s + 1) * {stretch}u < {length}u ? (s + 1) * {stretch}u : {length}u;
  {type} a = {identity};
  if (o < {results}u) {{
    const {memory}* from = in + ({kept});
    for (uint64_t r = s * {stretch}u + ty; r < end; r += {down}u) {{
      const {type} b = load(from[{gone}]);
      a = {combine};
    }}
  }}
  part[threadIdx.x] = a;
  for (uint32_t half = {down}u / 2; half > 0; half /= 2) {{
    __syncthreads();
    if (ty < half) {{
      const {type} b = part[threadIdx.x + half * {across}u];
      a = {combine};
      part[threadIdx.x] = a;
    }}
  }}
  if (ty == 0 && o < {results}u) out[s * {results}u + o] = Store<{to}>::of(a);
}}
)",
      fmt::arg("threads", kThreads), fmt::arg("memory", memory_type(from)), fmt::arg("to", to), fmt::arg("type", type),
      fmt::arg("across", l.across), fmt::arg("splits", l.splits), fmt::arg("stretch", stretch),
      fmt::arg("length", l.length), fmt::arg("results", l.results), fmt::arg("down", down),
      fmt::arg("identity", t.identity), fmt::arg("combine", t.combine),
      fmt::arg("kept", position_text(split.at_kept, split.kept, "o")),
      fmt::arg("gone", position_text(split.at_gone, split.gone, "r")));
}

}  // namespace

Kernel reduce_kernel_cuda(Reduction r, const KernelSpec& spec) {
  const DType dtype = spec.in[0].dtype;
  const Axes split(spec.in[0].shape, spec.attrs.ints("axes"));
  const Layout layout = layout_of(split);
  if (layout.results == 0) return [](const void* const*, void* const*) {};
  const Texts texts = texts_of(r, dtype);
  CudaLane* const lane = spec.cuda;
  if (layout.splits == 1) {
    const CudaFunction function = kernel_of(text_of(texts, split, layout, dtype, memory_type(dtype)), *lane);
    return [=, blocks = layout.blocks()](const void* const* in, void* const* out) {
      void* arguments[] = {argument(in[0]), argument(out[0])};
      function.launch(*lane, blocks, kThreads, arguments);
    };
  }
  // Parts are kept as they are computed: 16-bit floats as f32.
  const DType wide = dtype == DType::bf16 || dtype == DType::f16 ? DType::f32 : dtype;
  const CudaFunction first = kernel_of(text_of(texts, split, layout, dtype, register_name(dtype)), *lane);
  const Axes rest({layout.splits, layout.results}, {0});
  Layout last = layout_of(rest);
  last.splits = 1;
  const CudaFunction second = kernel_of(text_of(texts, rest, last, wide, memory_type(dtype)), *lane);
  const BufferPtr parts = lane->allocate(layout.splits * layout.results * size_of(wide));
  return [=, blocks = layout.blocks(), last_blocks = last.blocks()](const void* const* in, void* const* out) {
    void* middle = parts->data();
    void* arguments[] = {argument(in[0]), argument(middle)};
    first.launch(*lane, blocks, kThreads, arguments);
    void* more[] = {argument(middle), argument(out[0])};
    second.launch(*lane, last_blocks, kThreads, more);
  };
}

Kernel arg_kernel_cuda(bool greatest, const KernelSpec& spec) {
  const Type& x = spec.in[0];
  const auto axis = static_cast<size_t>(spec.attrs.integer("axis"));
  const int64_t n = x.shape[axis], inner = dense_strides(x.shape)[axis], results = count(spec.out[0].shape);
  if (results == 0) return [](const void* const*, void* const*) {};
  const std::string text = fmt::format(
      R"(#include "elements.h"
using namespace lockstep;
extern "C" __global__ void __launch_bounds__({threads}) f(const {memory}* in, int32_t* out) {{
  const uint64_t o = uint64_t(blockIdx.x) * {warps}u + threadIdx.x / 32u;
  if (o >= {results}u) return;
  const {memory}* from = in + o / {inner}u * {n}u * {inner}u + o % {inner}u;
  // A NaN is beyond everything, and of equals the first is taken.
  {type} best{{}};
  int32_t where = -1;
  for (uint32_t i = threadIdx.x % 32u; i < {n}u; i += 32u) {{
    const {type} x = load(from[uint64_t(i) * {inner}u]);
    const bool replaces = where < 0 || (best == best && (x {beyond} best || x != x));
    if (replaces) {{
      best = x;
      where = int32_t(i);
    }}
  }}
  for (int d = 16; d > 0; d /= 2) {{
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
  if (threadIdx.x % 32u == 0) out[o] = where;
}}
)",
      fmt::arg("threads", kThreads), fmt::arg("warps", kThreads / 32), fmt::arg("memory", memory_type(x.dtype)),
      fmt::arg("type", register_name(x.dtype)), fmt::arg("results", results), fmt::arg("n", n),
      fmt::arg("inner", inner), fmt::arg("beyond", greatest ? ">" : "<"),
      fmt::arg("shuffled", x.dtype == DType::boolean || x.dtype == DType::u8 ? "int(best)" : "best"));
  CudaLane* const lane = spec.cuda;
  const CudaFunction function = kernel_of(text, *lane);
  const int64_t blocks = (results + kThreads / 32 - 1) / (kThreads / 32);
  return [=](const void* const* in, void* const* out) {
    void* arguments[] = {argument(in[0]), argument(out[0])};
    function.launch(*lane, blocks, kThreads, arguments);
  };
}

}  // namespace lockstep
