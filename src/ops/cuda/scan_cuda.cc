// Cumulative results on the GPU: sums, products, extremes, log(sum(exp)). If there are many adjacent lines, a thread
// processes each. Otherwise a thread block processes a range of a line; the results of the preceding ranges are
// computed first. The order of the combinations depends only on the shape. As on the CPU, floats are combined in double
// and integers wrap.
#include <algorithm>

#include "lane/cuda/code.h"
#include "ops/cuda/cost_model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

constexpr int kScanThreads = 256;
constexpr int64_t kScanStretch = 2048;  // elements per thread block

// An array as [outer, n, inner], n along the axis: `lines` = outer * inner.
struct ScanLines {
  int64_t n, inner, lines;
  bool walked;

  explicit ScanLines(const KernelSpec& spec) {
    const Shape& shape = spec.in[0].shape;
    const int64_t axis = spec.attrs.integer("axis");
    n = shape[static_cast<size_t>(axis)];
    inner = extent(shape, axis + 1, spec.in[0].rank());
    lines = extent(shape, 0, axis) * inner;
    walked = n <= cost_model::kScanShortLine || (inner >= 32 && lines >= cost_model::kScanManyLines);
  }
  int64_t stretches() const { return (n + kScanStretch - 1) / kScanStretch; }
};

// How two results `a` and `b` of type Sum are combined, and the result for no elements, as text.
struct Combination {
  const char* both;
  const char* none;
};
constexpr const char* kInfinity = "__longlong_as_double(0x7ff0000000000000ll)";
constexpr const char* kMinusInfinity = "-__longlong_as_double(0x7ff0000000000000ll)";
Combination combination(CumulativeKind kind, DType dtype) {
  const bool floating = is_floating(dtype);
  switch (kind) {
    case CumulativeKind::sum:
      return {"a + b", "0"};
    case CumulativeKind::prod:
      return {"a * b", "1"};
    case CumulativeKind::max:
      return {"a > b || a != a ? a : b", floating           ? kMinusInfinity
                                         : is_signed(dtype) ? "int64_t(uint64_t(1) << 63)"
                                                            : "0"};
    case CumulativeKind::min:
      return {"a < b || a != a ? a : b", floating           ? kInfinity
                                         : is_signed(dtype) ? "int64_t(~uint64_t(0) >> 1)"
                                                            : "~uint64_t(0)"};
    case CumulativeKind::logsumexp:
      break;
  }
  return {"(a > b ? a : b) + log1p(exp(-fabs(a == b ? 0.0 : a - b)))", kMinusInfinity};
}

// Integer sums and products wrap; extremes keep the sign.
const char* combined_type(CumulativeKind kind, DType dtype) {
  const bool extreme = kind == CumulativeKind::max || kind == CumulativeKind::min;
  return is_floating(dtype) ? "double" : extreme && is_signed(dtype) ? "int64_t" : "uint64_t";
}

// The text of a kernel that calls this function of Scan<>.
std::string scan_text(const ScanLines& l, CumulativeKind kind, const KernelSpec& spec, const char* parameters,
                      const char* call) {
  const DType dtype = spec.in[0].dtype;
  const Combination combine = combination(kind, dtype);
  return fmt::format(
      R"(#include "scan.cuh"
using namespace lockstep;
struct Lines {{
  using T = {memory};
  using R = {number};
  using Sum = {sum};
  static constexpr uint64_t kN = {n}, kInner = {inner}, kLines = {lines};
  static constexpr uint32_t kThreads = {threads}, kStretch = {stretch}, kStretches = {stretches};
  static constexpr bool kReverse = {reverse};
  static Sum none() {{ return {none}; }}
  static Sum both(Sum a, Sum b) {{ return {both}; }}
}};
using T = Lines::T;
using Sum = Lines::Sum;
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{ Scan<Lines>::{call}; }}
)",
      fmt::arg("name", kernel_name("cumulative")), fmt::arg("memory", memory_type(dtype)),
      fmt::arg("number", register_name(dtype)), fmt::arg("sum", combined_type(kind, dtype)), fmt::arg("n", l.n),
      fmt::arg("inner", l.inner), fmt::arg("lines", l.lines), fmt::arg("threads", kScanThreads),
      fmt::arg("stretch", kScanStretch), fmt::arg("stretches", l.stretches()),
      fmt::arg("reverse", spec.attrs.get<bool>("reverse")), fmt::arg("none", combine.none),
      fmt::arg("both", combine.both), fmt::arg("parameters", parameters), fmt::arg("call", call));
}

}  // namespace

std::vector<std::string> cumulative_texts(CumulativeKind kind, const KernelSpec& spec) {
  const ScanLines l(spec);
  if (l.walked) return {scan_text(l, kind, spec, "const T* in, T* out", "lines(in, out)")};
  std::vector<std::string> out = {
      scan_text(l, kind, spec, "const T* in, const Sum* sums, T* out", "ranges(in, sums, out)")};
  if (l.stretches() > 1) {
    out.push_back(scan_text(l, kind, spec, "const T* in, Sum* sums", "range_sums(in, sums)"));
    out.push_back(scan_text(l, kind, spec, "Sum* sums", "sums_before(sums)"));
  }
  return out;
}

Kernel cumulative_kernel_cuda(CumulativeKind kind, const KernelSpec& spec) {
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  const ScanLines l(spec);
  CudaStream* const lane = spec.cuda;
  std::vector<CudaFunction> functions;
  for (const std::string& text : cumulative_texts(kind, spec)) functions.push_back(kernel_of(text, *lane));
  if (l.walked)
    return [=, function = functions[0]](const void* const* in, void* const* out) {
      void* arguments[] = {argument(in[0]), argument(out[0])};
      function.launch(*lane, (l.lines + kScanThreads - 1) / kScanThreads, kScanThreads, arguments);
    };
  const int64_t blocks = l.lines * l.stretches();
  const BufferPtr before = lane->allocate(blocks * 8);
  return [=](const void* const* in, void* const* out) {
    void* const sums = before->data();
    if (functions.size() > 1) {
      void* parts[] = {argument(in[0]), argument(sums)};
      functions[1].launch(*lane, blocks, kScanThreads, parts);
      void* line[] = {argument(sums)};
      functions[2].launch(*lane, l.lines, kScanThreads, line);
    }
    void* arguments[] = {argument(in[0]), argument(sums), argument(out[0])};
    functions[0].launch(*lane, blocks, kScanThreads, arguments);
  };
}

}  // namespace lockstep
