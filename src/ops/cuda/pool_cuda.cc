// Pooling on the GPU: a thread computes a few adjacent channels of one pixel. Gradients are gathered: every pixel adds
// up the contributions of the windows over it, in the order of the windows, as on the CPU.
#include <algorithm>

#include "lane/cuda/cuda_stream.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"
#include "ops/pool.h"

namespace lockstep {
namespace {

struct Geometry {
  Shape x, y;  // [n, h, w, c]
  PoolingOptions o;
  int64_t vector = 1;  // channels per thread

  // `single`: one channel per thread, so that the loads and stores of an elementwise program are coalesced.
  Geometry(PoolPass pass, const KernelSpec& spec, bool single = false) : o(pooling_options(spec.attrs)) {
    const bool to_input = pass == PoolPass::max_grad || pass == PoolPass::sum_grad;
    x = pass == PoolPass::sum_grad ? spec.out[0].shape : spec.in[0].shape;
    y = pass == PoolPass::sum_grad ? spec.in[0].shape : to_input ? spec.in[1].shape : spec.out[0].shape;
    while (!single && vector * 2 * size_of(spec.in[0].dtype) <= 16 && x[3] % (vector * 2) == 0) vector *= 2;
  }

  // Whether the windows tile the image: each element is in exactly one.
  bool tiles() const {
    return o.window == o.stride && o.pad == std::array<int64_t, 4>{} && x[1] % o.window[0] == 0 &&
           x[2] % o.window[1] == 0;
  }
};

// The text shared by all passes: types, extents, and the part of a window inside the image.
std::string common(const Geometry& g, DType dtype) {
  const char* number = register_name(dtype);
  bool wide = count(g.x) > INT32_MAX;
  for (const int64_t extent : {g.x[1], g.x[2], g.o.window[0], g.o.window[1], g.o.stride[0], g.o.stride[1]})
    wide = wide || extent > INT16_MAX;
  return fmt::format(
      R"(using T = {memory};
using R = {number};
using Index = {index};
using Pos = {pos};
constexpr int kV = {vector};
struct alignas({bytes}) Pack {{ T v[kV]; }};
constexpr Pos kH = {h}, kW = {w}, kOH = {oh}, kOW = {ow}, kKH = {kh}, kKW = {kw}, kSH = {sh}, kSW = {sw}, kPH = {ph}, kPW = {pw};
constexpr Index kC = {c};
constexpr R kLeast = {least};
struct Window {{ Pos top, bottom, left, right; }};
inline Window window(Pos oy, Pos ox) {{
  const Pos y0 = oy * kSH - kPH, x0 = ox * kSW - kPW;
  return {{y0 < 0 ? 0 : y0, y0 + kKH < kH ? y0 + kKH : kH, x0 < 0 ? 0 : x0, x0 + kKW < kW ? x0 + kKW : kW}};
}}
inline bool beats(R candidate, R best) {{ return candidate > best || (candidate != candidate && best == best); }}
// The position of each channel's maximum of a window: the first of equal ones.
inline void maxima(const Pack* image, const Window& w, Index* place) {{
  R best[kV];
  for (Pos y = w.top; y < w.bottom; ++y)
    for (Pos x = w.left; x < w.right; ++x) {{
      const Index at = Index(y * kW + x) * kC;
      const Pack p = image[at];
      const bool first = y == w.top && x == w.left;
#pragma unroll
      for (int k = 0; k < kV; ++k)
        if (first || beats(load(p.v[k]), best[k])) {{
          best[k] = load(p.v[k]);
          place[k] = at;
        }}
    }}
}}
)",
      fmt::arg("memory", memory_type(dtype)), fmt::arg("number", number),
      fmt::arg("index", index_type(std::max(count(g.x), count(g.y)))), fmt::arg("vector", g.vector),
      fmt::arg("pos", wide ? "int64_t" : "int32_t"), fmt::arg("bytes", g.vector * size_of(dtype)),
      fmt::arg("h", g.x[1]), fmt::arg("w", g.x[2]), fmt::arg("oh", g.y[1]), fmt::arg("ow", g.y[2]),
      fmt::arg("kh", g.o.window[0]), fmt::arg("kw", g.o.window[1]), fmt::arg("sh", g.o.stride[0]),
      fmt::arg("sw", g.o.stride[1]), fmt::arg("ph", g.o.pad[0]), fmt::arg("pw", g.o.pad[2]),
      fmt::arg("c", std::max<int64_t>(g.x[3] / g.vector, 1)),
      fmt::arg("least",
               is_floating(dtype) ? fmt::format("-{}(math::kInf)", number) : fmt::format("math::kLowest<{}>", number)));
}

// One thread for each pixel of an array of images `h` x `w`. Variables: n, y and x are the pixel, c its
// channels, `at` its position.
CudaStep per_pixel(const char* parameters, int64_t pixels, const char* h, const char* w, const std::string& body) {
  CudaStep step;
  step.name = "pool";
  step.parameters = parameters;
  step.blocks = (pixels + kStepThreads - 1) / kStepThreads;
  step.body = fmt::format(
      R"(  const Index at = Index(block) * {threads}u + threadIdx.x;
  if (at >= Index({pixels}u)) return;
  const Index c = at % kC, pixel = at / kC, x = pixel % Index({w}), y = pixel / Index({w}) % Index({h}),
              n = pixel / (Index({w}) * Index({h}));
{body})",
      fmt::arg("threads", kStepThreads), fmt::arg("pixels", pixels), fmt::arg("h", h), fmt::arg("w", w),
      fmt::arg("body", body));
  return step;
}

constexpr const char* kMax = R"(  const Window w = window(y, x);
  R best[kV];
#pragma unroll
  for (int k = 0; k < kV; ++k) best[k] = kLeast;
  const Pack* image = in + n * Index(kH * kW) * kC + c;
  for (Pos v = w.top; v < w.bottom; ++v)
    for (Pos u = w.left; u < w.right; ++u) {
      const Pack p = image[Index(v * kW + u) * kC];
#pragma unroll
      for (int k = 0; k < kV; ++k) best[k] = beats(load(p.v[k]), best[k]) ? load(p.v[k]) : best[k];
    }
  Pack result;
#pragma unroll
  for (int k = 0; k < kV; ++k) result.v[k] = Store<T>::of(best[k]);
  out[at] = result;
)";

constexpr const char* kPick = R"(  const Window w = window(y, x);
  Pack result{};
  if (w.top < w.bottom && w.left < w.right) {
    const Index first = n * Index(kH * kW) * kC + c;
    Index place[kV];
    maxima(in + first, w, place);
#pragma unroll
    for (int k = 0; k < kV; ++k) result.v[k] = from[first + place[k]].v[k];
  }
  out[at] = result;
)";

constexpr const char* kSum = R"(  const Window w = window(y, x);
  R sum[kV] = {};
  const Pack* image = in + n * Index(kH * kW) * kC + c;
  for (Pos v = w.top; v < w.bottom; ++v)
    for (Pos u = w.left; u < w.right; ++u) {
      const Pack p = image[Index(v * kW + u) * kC];
#pragma unroll
      for (int k = 0; k < kV; ++k) sum[k] = math::add(sum[k], R(load(p.v[k])));
    }
  Pack result;
#pragma unroll
  for (int k = 0; k < kV; ++k) result.v[k] = Store<T>::of(sum[k]);
  out[at] = result;
)";

// The windows over a pixel: rows [first_y, last_y] and columns [first_x, last_x] of windows.
constexpr const char* kWindowsOver = R"(  const Pos py = Pos(y) + kPH, px = Pos(x) + kPW;
  const Pos first_y = py < kKH ? 0 : (py - kKH) / kSH + 1, first_x = px < kKW ? 0 : (px - kKW) / kSW + 1;
  const Pos last_y = py / kSH < kOH ? py / kSH : kOH - 1, last_x = px / kSW < kOW ? px / kSW : kOW - 1;
  R sum[kV] = {};
  const Pack* sent = dy + n * Index(kOH * kOW) * kC + c;
)";

constexpr const char* kMaxGrad = R"(  const Pack* image = in + n * Index(kH * kW) * kC + c;
  const Index own = Index(y * Index(kW) + x) * kC;
  for (Pos v = first_y; v <= last_y; ++v)
    for (Pos u = first_x; u <= last_x; ++u) {
      Index place[kV];
      maxima(image, window(v, u), place);
      const Pack p = sent[Index(v * kOW + u) * kC];
#pragma unroll
      for (int k = 0; k < kV; ++k)
        if (place[k] == own) sum[k] = math::add(sum[k], R(load(p.v[k])));
    }
)";

constexpr const char* kSumGrad = R"(  for (Pos v = first_y; v <= last_y; ++v)
    for (Pos u = first_x; u <= last_x; ++u) {
      const Pack p = sent[Index(v * kOW + u) * kC];
#pragma unroll
      for (int k = 0; k < kV; ++k) sum[k] = math::add(sum[k], R(load(p.v[k])));
    }
)";

constexpr const char* kStoreSums = R"(  Pack result;
#pragma unroll
  for (int k = 0; k < kV; ++k) result.v[k] = Store<T>::of(sum[k]);
  out[at] = result;
)";

// One thread per window, which writes all of its elements.
constexpr const char* kMaxGradTiles = R"(  const Window w = window(y, x);
  const Index first = n * Index(kH * kW) * kC + c;
  Index place[kV];
  maxima(in + first, w, place);
  const Pack p = dy[at];
#pragma unroll
  for (Pos v = 0; v < kKH; ++v)
#pragma unroll
    for (Pos u = 0; u < kKW; ++u) {
      const Index own = Index((w.top + v) * kW + w.left + u) * kC;
      Pack result;
#pragma unroll
      for (int k = 0; k < kV; ++k) result.v[k] = Store<T>::of(place[k] == own ? math::add(R(0), R(load(p.v[k]))) : R(0));
      out[first + own] = result;
    }
)";

// The same, followed by a program of each element, whose loads are issued before the search for the maxima.
constexpr const char* kMaxGradTilesFinish = R"(  const Window w = window(y, x);
  const Index first = n * Index(kH * kW) * kC + c;
  Read given[kKH * kKW];
#pragma unroll
  for (Pos v = 0; v < kKH; ++v)
#pragma unroll
    for (Pos u = 0; u < kKW; ++u) reads(first + Index((w.top + v) * kW + w.left + u) * kC, given[v * kKW + u]);
  Index place[1];
  maxima(in + first, w, place);
  const R sent = math::add(R(0), R(load(dy[at].v[0])));
#pragma unroll
  for (Pos v = 0; v < kKH; ++v)
#pragma unroll
    for (Pos u = 0; u < kKW; ++u) {
      const Index own = Index((w.top + v) * kW + w.left + u) * kC;
      finish(first + own, place[0] == own ? sent : R(0), given[v * kKW + u]);
    }
)";

constexpr const char* kFinishSums = R"(  Read given;
  reads(at, given);
  finish(at, sum[0], given);
)";

// The largest window that a thread can hold in registers, in pixels.
constexpr int64_t kMostPixels = 16;

// The gradient of max_pool followed by a program of its elements. Returns nullopt if the program needs other
// elements than its own.
std::optional<CudaStep> max_grad_finish_step(const Geometry& g, const Program& body) {
  const auto element = element_finish(body);
  if (!element) return {};
  const bool tiles = g.tiles() && g.o.window[0] * g.o.window[1] <= kMostPixels;
  const std::string functions = fmt::format(
      "  struct Read {{\n{}  }};\n  const auto reads = [&](const Index i, Read& r) {{\n{}  }};\n"
      "  const auto finish = [&](const Index i, const R x, const Read& r) {{\n{}  }};\n",
      element->fields, element->reads, element->finish);
  constexpr const char* kParameters = "const Pack* in, const Pack* dy";
  CudaStep step =
      tiles ? per_pixel(kParameters, count(g.y), "kOH", "kOW", functions + kMaxGradTilesFinish)
            : per_pixel(kParameters, count(g.x), "kH", "kW", functions + kWindowsOver + kMaxGrad + kFinishSums);
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::operand, 2}};
  add_body_parameters(step, body, 3);
  return step;
}

CudaStep step_of(PoolPass pass, const Geometry& g) {
  const bool by_input = pass == PoolPass::sum_grad || (pass == PoolPass::max_grad && !g.tiles());
  const int64_t n = count(by_input ? g.x : g.y) / g.vector;
  switch (pass) {
    case PoolPass::max:
      return per_pixel("const Pack* in, Pack* out", n, "kOH", "kOW", kMax);
    case PoolPass::pick:
      return per_pixel("const Pack* in, const Pack*, const Pack* from, Pack* out", n, "kOH", "kOW", kPick);
    case PoolPass::sum:
      return per_pixel("const Pack* in, Pack* out", n, "kOH", "kOW", kSum);
    case PoolPass::sum_grad:
      return per_pixel("const Pack* dy, Pack* out", n, "kH", "kW", std::string(kWindowsOver) + kSumGrad + kStoreSums);
    case PoolPass::max_grad:
      break;
  }
  constexpr const char* kParameters = "const Pack* in, const Pack*, const Pack* dy, Pack* out";
  if (g.tiles()) return per_pixel(kParameters, n, "kOH", "kOW", kMaxGradTiles);
  return per_pixel(kParameters, n, "kH", "kW", std::string(kWindowsOver) + kMaxGrad + kStoreSums);
}

// The step without the elementwise program.
CudaStep plain_step(PoolPass pass, const KernelSpec& spec) {
  const Geometry g(pass, spec);
  CudaStep step = step_of(pass, g);
  step.prelude = "#include \"elements.h\"\nusing namespace lockstep;\n" + common(g, spec.in[0].dtype);
  const size_t operands = pass == PoolPass::max_grad || pass == PoolPass::pick ? 3 : 1;
  for (size_t i = 0; i < operands; ++i) step.arguments.push_back({CudaStep::Argument::operand, i});
  step.arguments.push_back({CudaStep::Argument::result, 0});
  return step;
}

std::optional<CudaStep> finish_step(PoolPass pass, const KernelSpec& spec) {
  const Geometry g(pass, spec, true);
  auto step = max_grad_finish_step(g, spec.attrs.program("body"));
  if (step) step->prelude = "#include \"elementwise.h\"\nusing namespace lockstep;\n" + common(g, spec.in[0].dtype);
  return step;
}

// A separate launch, not a part of a persistent kernel: then several thread blocks share a multiprocessor.
Kernel apart(CudaStream* lane, CudaStep step) {
  return
      [kernel = SteppedKernel(lane, {std::move(step)})](const void* const* in, void* const* out) { kernel(in, out); };
}

}  // namespace

std::string pool_text(PoolPass pass, const KernelSpec& spec) {
  const auto step = spec.attrs.find("body") ? finish_step(pass, spec) : std::nullopt;
  return text_of(step ? *step : plain_step(pass, spec));
}

Kernel pool_kernel_cuda(PoolPass pass, const KernelSpec& spec) {
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  if (!spec.attrs.find("body")) return apart(spec.cuda, plain_step(pass, spec));
  if (auto step = finish_step(pass, spec)) return apart(spec.cuda, *std::move(step));
  return then_body(
      [plain = apart(spec.cuda, plain_step(pass, spec))](const void* const* in, void* out) { plain(in, &out); }, 3,
      spec.attrs.program("body"), spec);
}

}  // namespace lockstep
