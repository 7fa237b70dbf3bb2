#include "ops/cuda/conv_direct_text.h"

#include <algorithm>

#include "lane/cpu/conv_direct.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/text.h"

namespace lockstep {
namespace {

constexpr int kDirectThreads = 256;
// The threads of a filter's gradient to aim for, and the pixels that a thread adds up at least.
constexpr int64_t kFilterThreads = int64_t{1} << 18;
constexpr int64_t kFilterPixels = 64;

// Adjacent channels of a thread: only where each group has one.
int64_t direct_vector(const ConvSpec& s) {
  if (s.in_channels != s.groups || s.out_channels != s.groups) return 1;
  const int64_t most = 16 / size_of(s.dtype);
  int64_t v = 1;
  while (v * 2 <= std::min<int64_t>(most, 4) && s.in_channels % (v * 2) == 0) v *= 2;
  return v;
}

int64_t pixels_of(const ConvSpec& s, ConvSpec::Pair out) { return s.batch * out[0] * out[1]; }

}  // namespace

bool has_direct_conv(const ConvSpec& spec) { return detail::is_direct(spec); }

ConvLayout conv_direct_layout(ConvPass pass, const ConvSpec& s) {
  ConvLayout l = conv_layout(pass, s, ConvMath::fma);  // of which only the number of results counts
  const int64_t each = l.results / direct_vector(s), pixels = pixels_of(s, conv_out(s));
  l.threads = kDirectThreads;
  l.splits = 1;
  if (pass == ConvPass::filter_grad) {
    const int64_t most = std::max<int64_t>(pixels / kFilterPixels, 1);
    l.splits = std::clamp<int64_t>(kFilterThreads / each, 1, most);
    l.tiles_each = (pixels + l.splits - 1) / l.splits;
    l.splits = (pixels + l.tiles_each - 1) / l.tiles_each;
  }
  l.blocks = (l.splits * each + kDirectThreads - 1) / kDirectThreads;
  return l;
}

namespace {

// The type that describes a convolution to the kernel.
std::string describe_direct_conv(ConvPass pass, const ConvSpec& s, int64_t vector) {
  const ConvLayout l = conv_direct_layout(pass, s);
  const ConvSpec::Pair out = conv_out(s);
  const int64_t most = std::max({s.batch * s.in[0] * s.in[1] * s.in_channels, pixels_of(s, out) * s.out_channels,
                                 l.results * l.splits + kDirectThreads});
  bool wide = most > INT32_MAX / 2;
  for (size_t d = 0; d < 2; ++d)
    wide = wide || s.in[d] + s.pad_lo[d] + s.kernel[d] * s.kernel_dilation[d] > INT32_MAX / 2 ||
           out[d] * s.stride[d] > INT32_MAX / 2;
  return fmt::format(
      R"(using namespace lockstep;
struct Conv {{
  using T = {memory};
  using R = {sum};
  using Out = {to};
  using I = {index};
  using U = {unsigned};
  static constexpr int kV = {vector}, kThreads = {threads};
  static constexpr U kResults = {results}, kPixels = {pixels}, kSplits = {splits}, kEach = {each};
  static constexpr U kH = {h}, kW = {w}, kOH = {oh}, kOW = {ow}, kKH = {kh}, kKW = {kw}, kCI = {ci}, kCO = {co};
  static constexpr I kC = {c}, kO = {o}, kSH = {sh}, kSW = {sw}, kDH = {dh}, kDW = {dw}, kPH = {ph}, kPW = {pw};
}};
)",
      fmt::arg("memory", memory_type(s.dtype)), fmt::arg("sum", register_name(s.dtype)),
      fmt::arg("to", l.splits > 1 ? register_name(s.dtype) : memory_type(s.dtype)),
      fmt::arg("index", wide ? "int64_t" : "int32_t"), fmt::arg("unsigned", wide ? "uint64_t" : "uint32_t"),
      fmt::arg("vector", vector), fmt::arg("threads", kDirectThreads), fmt::arg("results", l.results),
      fmt::arg("pixels", pixels_of(s, out)), fmt::arg("splits", l.splits), fmt::arg("each", l.tiles_each),
      fmt::arg("h", s.in[0]), fmt::arg("w", s.in[1]), fmt::arg("oh", out[0]), fmt::arg("ow", out[1]),
      fmt::arg("kh", s.kernel[0]), fmt::arg("kw", s.kernel[1]), fmt::arg("ci", s.in_channels / s.groups),
      fmt::arg("co", s.out_channels / s.groups), fmt::arg("c", s.in_channels), fmt::arg("o", s.out_channels),
      fmt::arg("sh", s.stride[0]), fmt::arg("sw", s.stride[1]), fmt::arg("dh", s.kernel_dilation[0]),
      fmt::arg("dw", s.kernel_dilation[1]), fmt::arg("ph", s.pad_lo[0]), fmt::arg("pw", s.pad_lo[1]));
}

}  // namespace

std::string conv_direct_text(ConvPass pass, const ConvSpec& s) {
  return fmt::format(R"(#include "conv_direct.cuh"
{}extern "C" __global__ void __launch_bounds__({})
    {}(const Conv::T* __restrict__ a, const Conv::T* __restrict__ b, Conv::Out* __restrict__ out) {{
  ConvDirect<Conv>::{}(a, b, out);
}}
)",
                     describe_direct_conv(pass, s, direct_vector(s)), kDirectThreads, kernel_name("conv_direct"),
                     enumerator(pass));
}

std::optional<CudaStep> conv_direct_step(const ConvSpec& s, const Program& body) {
  const auto element = element_finish(body);
  if (!element) return {};
  const int64_t results = conv_direct_layout(ConvPass::forward, s).results;
  CudaStep step;
  step.name = "conv_direct";
  step.prelude = fmt::format(
      "#include \"conv_direct.cuh\"\n#include \"elementwise.cuh\"\n{}using R = Conv::R;\nusing Index = Conv::U;\n",
      describe_direct_conv(ConvPass::forward, s, 1));
  step.parameters = "const Conv::T* a, const Conv::T* b";
  step.arguments = {{CudaStep::Argument::operand, 0}, {CudaStep::Argument::operand, 1}};
  step.blocks = (results + kStepThreads - 1) / kStepThreads;
  step.body = fmt::format(
      "  struct Read {{\n{}  }};\n  const auto reads = [&](const Index i, Read& r) {{\n{}  }};\n"
      "  const auto finish = [&](const Index i, const R x, const Read& r) {{\n{}  }};\n"
      "  const Index at = Index(block) * {}u + threadIdx.x;\n  if (at >= Index({}u)) return;\n"
      "  ConvDirect<Conv>::forward_finish<Read>(at, a, b, reads, finish);\n",
      element->fields, element->reads, element->finish, kStepThreads, results);
  add_body_parameters(step, body, 2);
  return step;
}

}  // namespace lockstep
