// Normalization on the GPU. A warp computes a row, or a thread block if the row is long. The kernel of a gradient writes
// dx and, for each thread block, the sums over its rows for dscale and dbias. A second kernel adds up these sums in
// order.
#include <algorithm>
#include <memory>

#include "lane/cuda/code.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/norm.h"

namespace lockstep {
namespace {

constexpr int kNormThreads = 256;
constexpr int64_t kNormGradBlocks = 264;  // thread blocks of a gradient, two for each multiprocessor of a large GPU
constexpr int64_t kNormRowBytes = 256;    // of a row in the registers of a thread; a gradient keeps four such arrays
constexpr int64_t kNormGradRowBytes = 128;

bool is_norm_grad(NormPass pass) { return pass == NormPass::layer_grad || pass == NormPass::rms_grad; }
bool is_layer_norm(NormPass pass) { return pass == NormPass::layer || pass == NormPass::layer_grad; }

// How rows are divided over threads.
struct NormLayout {
  NormSizes s;
  bool wide;  // f64
  int64_t vector = 1, team = 32, packs = 0;
  bool kept = true;
  int64_t own = 0, blocks = 0;  // of a gradient: rows per thread block, thread blocks per batch element

  NormLayout(NormPass pass, const KernelSpec& spec)
      : s(spec.in[0].shape, spec.attrs.integer("batch_dims")), wide(spec.in[0].dtype == DType::f64) {
    while (vector * 2 * size_of(spec.in[0].dtype) <= 16 && s.d % (vector * 2) == 0) vector *= 2;
    const int64_t most = is_norm_grad(pass) ? kNormGradRowBytes : kNormRowBytes;
    const auto fits = [&] {
      packs = std::max<int64_t>((s.d / vector + team - 1) / team, 1);
      return packs * vector * (wide ? 8 : 4) <= most;
    };
    if (!fits()) {
      team = kNormThreads;
      kept = fits();
    }
    if (!is_norm_grad(pass)) return;
    own = std::max({teams(), (s.groups * s.rows + kNormGradBlocks - 1) / kNormGradBlocks, int64_t{1}});
    blocks = (s.rows + own - 1) / own;
  }
  int64_t teams() const { return kNormThreads / team; }
  int64_t forward_blocks() const { return (s.groups * s.rows + teams() - 1) / teams(); }
  int64_t column_blocks() const { return s.groups * ((s.d + 31) / 32); }
  // Bytes of the sums of all thread blocks, for dscale or dbias.
  int64_t sum_bytes() const { return s.groups * blocks * s.d * (wide ? 8 : 4); }
};

std::string norm_text(NormPass pass, const NormLayout& l, const KernelSpec& spec, const char* parameters,
                      const char* call) {
  const DType x = spec.in[0].dtype, scale = spec.in[1].dtype;
  return fmt::format(
      R"(#include "norm.cuh"
using namespace lockstep;
struct Rows {{
  using T = {memory};
  using P = {parameter};
  using R = {number};
  using PR = {parameter_number};
  static constexpr uint64_t kD = {d}, kRows = {rows}, kTotal = {total}, kOwn = {own}, kBlocks = {blocks};
  static constexpr uint32_t kVector = {vector}, kPacks = {packs}, kTeam = {team}, kThreads = {threads};
  static constexpr bool kKept = {kept}, kCentered = {centered};
  static constexpr double kEpsilon = {epsilon:.17g};
}};
using T = Rows::T;
using P = Rows::P;
using R = Rows::R;
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{
  Norm<Rows>::{call};
}}
)",
      fmt::arg("name", kernel_name(is_layer_norm(pass) ? "layer_norm" : "rms_norm")),
      fmt::arg("memory", memory_type(x)), fmt::arg("parameter", memory_type(scale)),
      fmt::arg("number", register_name(x)), fmt::arg("parameter_number", register_name(scale)), fmt::arg("d", l.s.d),
      fmt::arg("rows", l.s.rows), fmt::arg("total", l.s.groups * l.s.rows), fmt::arg("own", l.own),
      fmt::arg("blocks", l.blocks), fmt::arg("vector", l.vector), fmt::arg("packs", l.packs), fmt::arg("team", l.team),
      fmt::arg("threads", kNormThreads), fmt::arg("kept", l.kept), fmt::arg("centered", is_layer_norm(pass)),
      fmt::arg("epsilon", spec.attrs.get_or("epsilon", 0.0)), fmt::arg("parameters", parameters),
      fmt::arg("call", call));
}

Kernel norm_forward_cuda(NormPass pass, const KernelSpec& spec) {
  const NormLayout l(pass, spec);
  if (l.forward_blocks() == 0) return [](const void* const*, void* const*) {};
  CudaStream* const lane = spec.cuda;
  const size_t ins = spec.in.size(), outs = spec.out.size();
  return [=, blocks = l.forward_blocks(), function = kernel_of(norm_texts(pass, spec)[0], *lane),
          arguments = std::vector<void*>(ins + outs)](const void* const* in, void* const* out) mutable {
    for (size_t i = 0; i < ins; ++i) arguments[i] = argument(in[i]);
    for (size_t o = 0; o < outs; ++o) arguments[ins + o] = argument(out[o]);
    function.launch(*lane, blocks, kNormThreads, arguments.data());
  };
}

Kernel norm_grad_cuda(NormPass pass, const KernelSpec& spec) {
  const NormLayout l(pass, spec);
  if (l.column_blocks() == 0) return [](const void* const*, void* const*) {};
  CudaStream* const lane = spec.cuda;
  const std::vector<std::string> texts = norm_texts(pass, spec);
  begin_kernel(texts[1], *lane);
  // Without rows, dscale and dbias are zero.
  const CudaFunction rows = l.blocks > 0 ? kernel_of(texts[0], *lane) : CudaFunction();
  const CudaFunction columns = kernel_of(texts[1], *lane);
  const BufferPtr scale_sums = lane->allocate(l.sum_bytes()),
                  bias_sums = is_layer_norm(pass) ? lane->allocate(l.sum_bytes()) : BufferPtr();
  const size_t ins = spec.in.size();
  return [=, arguments = std::vector<void*>(ins + 3)](const void* const* in, void* const* out) mutable {
    const void* const to_scale = scale_sums->data();
    const void* const to_bias = bias_sums ? bias_sums->data() : nullptr;
    for (size_t i = 0; i < ins; ++i) arguments[i] = argument(in[i]);
    arguments[ins] = argument(out[0]);
    arguments[ins + 1] = argument(to_scale);
    arguments[ins + 2] = argument(to_bias);
    if (l.blocks > 0) rows.launch(*lane, l.s.groups * l.blocks, kNormThreads, arguments.data());
    void* dscale[] = {argument(to_scale), argument(out[1])};
    columns.launch(*lane, l.column_blocks(), kNormThreads, dscale);
    if (!bias_sums) return;
    void* dbias[] = {argument(to_bias), argument(out[2])};
    columns.launch(*lane, l.column_blocks(), kNormThreads, dbias);
  };
}

}  // namespace

std::vector<std::string> norm_texts(NormPass pass, const KernelSpec& spec) {
  const NormLayout l(pass, spec);
  const auto text = [&](const char* parameters, const char* call) {
    return norm_text(pass, l, spec, parameters, call);
  };
  switch (pass) {
    case NormPass::layer:
      return {text("const T* x, const P* scale, const P* bias, T* y, R* mean, R* rstd",
                   "forward(x, scale, bias, y, mean, rstd)")};
    case NormPass::rms:
      return {text("const T* x, const P* scale, T* y, R* rstd", "forward(x, scale, nullptr, y, nullptr, rstd)")};
    case NormPass::layer_grad:
      return {text("const T* x, const P* scale, const R* mean, const R* rstd, const T* dy, T* dx, R* dscale, R* dbias",
                   "backward(x, scale, mean, rstd, dy, dx, dscale, dbias)"),
              text("const R* sums, P* to", "add_blocks(sums, to)")};
    case NormPass::rms_grad:
      break;
  }
  return {text("const T* x, const P* scale, const R* rstd, const T* dy, T* dx, R* dscale, R* dbias",
               "backward(x, scale, nullptr, rstd, dy, dx, dscale, dbias)"),
          text("const R* sums, P* to", "add_blocks(sums, to)")};
}

Kernel norm_kernel_cuda(NormPass pass, const KernelSpec& spec) {
  return is_norm_grad(pass) ? norm_grad_cuda(pass, spec) : norm_forward_cuda(pass, spec);
}

}  // namespace lockstep
