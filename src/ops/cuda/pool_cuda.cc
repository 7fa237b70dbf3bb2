// Pooling on the GPU: a thread computes a few adjacent channels of one pixel. Gradients are gathered: every pixel adds
// up the contributions of the windows over it, in the order of the windows, as on the CPU.
#include <algorithm>

#include "lane/cuda/cuda_stream.h"
#include "ops/cuda/cost_model.h"
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

// The includes, and a type that describes the pooling. `header`: besides "pool.cuh".
std::string prelude_of(const Geometry& g, DType dtype, const char* header) {
  bool wide = count(g.x) > INT32_MAX;
  for (const int64_t extent : {g.x[1], g.x[2], g.o.window[0], g.o.window[1], g.o.stride[0], g.o.stride[1]})
    wide = wide || extent > INT16_MAX;
  return fmt::format(
      R"(#include "pool.cuh"
{header}using namespace lockstep;
struct Pooling {{
  using T = {memory};
  using R = {number};
  using Index = {index};
  using Pos = {pos};
  static constexpr int kV = {vector};
  static constexpr Pos kH = {h}, kW = {w}, kOH = {oh}, kOW = {ow}, kKH = {kh}, kKW = {kw}, kSH = {sh}, kSW = {sw}, kPH = {ph}, kPW = {pw};
  static constexpr Index kC = {c};
}};
using R = Pooling::R;
using Index = Pooling::Index;
using Pack = Pool<Pooling>::Pack;
)",
      fmt::arg("header", header), fmt::arg("memory", memory_type(dtype)), fmt::arg("number", register_name(dtype)),
      fmt::arg("index", index_type(std::max(count(g.x), count(g.y)))), fmt::arg("vector", g.vector),
      fmt::arg("pos", wide ? "int64_t" : "int32_t"), fmt::arg("h", g.x[1]), fmt::arg("w", g.x[2]),
      fmt::arg("oh", g.y[1]), fmt::arg("ow", g.y[2]), fmt::arg("kh", g.o.window[0]), fmt::arg("kw", g.o.window[1]),
      fmt::arg("sh", g.o.stride[0]), fmt::arg("sw", g.o.stride[1]), fmt::arg("ph", g.o.pad[0]),
      fmt::arg("pw", g.o.pad[2]), fmt::arg("c", std::max<int64_t>(g.x[3] / g.vector, 1)));
}

// One thread for each of `count` vectors of channels, which calls this function of Pool<>.
CudaStep per_vector(const char* parameters, int64_t count, const std::string& call) {
  CudaStep step;
  step.name = "pool";
  step.parameters = parameters;
  step.blocks = (count + kStepThreads - 1) / kStepThreads;
  step.body = fmt::format(
      "  const Index at = Index(block) * {}u + threadIdx.x;\n  if (at >= Index({}u)) return;\n  Pool<Pooling>::{};\n",
      kStepThreads, count, call);
  return step;
}

// The gradient of max_pool followed by a program of its elements. Returns nullopt if the program needs other
// elements than its own.
std::optional<CudaStep> max_grad_finish_step(const Geometry& g, const Program& body) {
  const auto element = element_finish(body);
  if (!element) return {};
  const bool tiles = g.tiles() && g.o.window[0] * g.o.window[1] <= cost_model::kWindowPixelsPerThread;
  const std::string functions = fmt::format(
      "  struct Read {{\n{}  }};\n  const auto reads = [&](const Index i, Read& r) {{\n{}  }};\n"
      "  const auto finish = [&](const Index i, const R x, const Read& r) {{\n{}  }};\n",
      element->fields, element->reads, element->finish);
  constexpr const char* kParameters = "const Pack* in, const Pack* dy";
  CudaStep step = per_vector(
      kParameters, count(tiles ? g.y : g.x),
      fmt::format("{}<Read>(at, in, dy, reads, finish)", tiles ? "max_grad_tiles_finish" : "max_grad_finish"));
  step.body = functions + step.body;
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::operand, 2}};
  add_body_parameters(step, body, 3);
  return step;
}

CudaStep step_of(PoolPass pass, const Geometry& g) {
  const bool by_input = pass == PoolPass::sum_grad || (pass == PoolPass::max_grad && !g.tiles());
  const int64_t n = count(by_input ? g.x : g.y) / g.vector;
  switch (pass) {
    case PoolPass::max:
      return per_vector("const Pack* in, Pack* out", n, "max(at, in, out)");
    case PoolPass::pick:
      return per_vector("const Pack* in, const Pack*, const Pack* from, Pack* out", n, "pick(at, in, from, out)");
    case PoolPass::sum:
      return per_vector("const Pack* in, Pack* out", n, "sum(at, in, out)");
    case PoolPass::sum_grad:
      return per_vector("const Pack* dy, Pack* out", n, "sum_grad(at, dy, out)");
    case PoolPass::max_grad:
      break;
  }
  return per_vector("const Pack* in, const Pack*, const Pack* dy, Pack* out", n,
                    g.tiles() ? "max_grad_tiles(at, in, dy, out)" : "max_grad(at, in, dy, out)");
}

// The step without the elementwise program.
CudaStep plain_step(PoolPass pass, const KernelSpec& spec) {
  const Geometry g(pass, spec);
  CudaStep step = step_of(pass, g);
  step.prelude = prelude_of(g, spec.in[0].dtype, "");
  const size_t operands = pass == PoolPass::max_grad || pass == PoolPass::pick ? 3 : 1;
  for (size_t i = 0; i < operands; ++i) step.arguments.push_back({CudaStep::Argument::operand, i});
  step.arguments.push_back({CudaStep::Argument::result, 0});
  return step;
}

std::optional<CudaStep> finish_step(PoolPass pass, const KernelSpec& spec) {
  const Geometry g(pass, spec, true);
  auto step = max_grad_finish_step(g, spec.attrs.program("body"));
  if (step) step->prelude = prelude_of(g, spec.in[0].dtype, "#include \"elementwise.cuh\"\n");
  return step;
}

}  // namespace

std::string pool_text(PoolPass pass, const KernelSpec& spec) {
  const auto step = spec.attrs.find("body") ? finish_step(pass, spec) : std::nullopt;
  return text_of(step ? *step : plain_step(pass, spec));
}

// Launched by itself, not a task of a persistent kernel: then several thread blocks share a multiprocessor.
Kernel pool_kernel_cuda(PoolPass pass, const KernelSpec& spec) {
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  if (!spec.attrs.find("body")) return LaunchedSteps(*spec.cuda, {plain_step(pass, spec)});
  if (auto step = finish_step(pass, spec)) return LaunchedSteps(*spec.cuda, {*std::move(step)});
  return then_body([plain = LaunchedSteps(*spec.cuda, {plain_step(pass, spec)})](const void* const* in,
                                                                                 void* out) { plain(in, &out); },
                   3, spec.attrs.program("body"), spec);
}

}  // namespace lockstep
