// Cumulative sums on the GPU. If there are many adjacent lines, a thread processes each. Otherwise a thread block
// processes a range of a line; the sums of the preceding ranges are computed first. The order of the additions depends
// only on the shape. As on the CPU, floats are summed in double and integers wrap.
#include <algorithm>

#include "lane/cuda/code.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

constexpr int kScanThreads = 256;
constexpr int64_t kScanStretch = 2048;  // elements per thread block
constexpr int64_t kShort = 32;          // lines too short for a thread block

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
    walked = n <= kShort || (inner >= 32 && lines >= 16384);
  }
  int64_t stretches() const { return (n + kScanStretch - 1) / kScanStretch; }
};

std::string common(const ScanLines& l, const KernelSpec& spec) {
  const DType dtype = spec.in[0].dtype;
  return fmt::format(
      R"(#include "elements.h"
using namespace lockstep;
using T = {memory};
using R = {number};
using Sum = {sum};
constexpr uint64_t kN = {n}, kInner = {inner}, kLines = {lines};
constexpr uint32_t kStretch = {stretch}, kStretches = {stretches};
inline uint64_t place(uint64_t line, uint64_t j) {{
  return line / kInner * kN * kInner + {along} * kInner + line % kInner;
}}
inline Sum number(T x) {{ return Sum(load(x)); }}
inline T element(Sum x) {{ return Store<T>::of(R(x)); }}
)",
      fmt::arg("memory", memory_type(dtype)), fmt::arg("number", register_name(dtype)),
      fmt::arg("sum", is_floating(dtype) ? "double" : "uint64_t"), fmt::arg("n", l.n), fmt::arg("inner", l.inner),
      fmt::arg("lines", l.lines), fmt::arg("stretch", kScanStretch), fmt::arg("stretches", l.stretches()),
      fmt::arg("along", spec.attrs.get<bool>("reverse") ? "(kN - 1 - j)" : "j"));
}

constexpr const char* kWalk = R"(
extern "C" __global__ void __launch_bounds__(256) f(const T* in, T* out) {
  const uint64_t line = uint64_t(blockIdx.x) * 256u + threadIdx.x;
  if (line >= kLines) return;
  Sum sum = 0;
  for (uint64_t j = 0; j < kN; ++j) {
    const uint64_t at = place(line, j);
    sum += number(in[at]);
    out[at] = element(sum);
  }
}
)";

// The sum of x over this thread and those before it in the block. Sets `earlier` to the sum over those before it, and
// `all` to that of the block. Does not subtract, which would be wrong for infinities.
constexpr const char* kBlockScan = R"(
inline Sum block_scan(Sum x, Sum& earlier, Sum& all) {
  __shared__ Sum warps[8];
  const uint32_t in_warp = threadIdx.x % 32u, warp = threadIdx.x / 32u;
  for (uint32_t d = 1; d < 32u; d *= 2) {
    const Sum before = __shfl_up_sync(0xffffffffu, x, d);
    if (in_warp >= d) x += before;
  }
  if (in_warp == 31u) warps[warp] = x;
  __syncthreads();
  Sum before = 0;
  all = 0;
  for (uint32_t w = 0; w < 8u; ++w) {
    if (w < warp) before += warps[w];
    all += warps[w];
  }
  __syncthreads();
  const Sum left = __shfl_up_sync(0xffffffffu, x, 1);
  earlier = before + (in_warp > 0 ? left : Sum(0));
  return before + x;
}
)";

constexpr const char* kStretchSums = R"(
extern "C" __global__ void __launch_bounds__(256) f(const T* in, Sum* sums) {
  const uint64_t line = blockIdx.x / kStretches;
  const uint32_t stretch = blockIdx.x % kStretches;
  Sum carry = 0;
  for (uint32_t first = 0; first < kStretch; first += 256u) {
    const uint64_t j = uint64_t(stretch) * kStretch + first + threadIdx.x;
    Sum earlier, all;
    block_scan(j < kN ? number(in[place(line, j)]) : Sum(0), earlier, all);
    carry += all;
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = carry;
}
)";

// Replaces the sum of each range by the sum of the ranges before it.
constexpr const char* kBeforeStretches = R"(
extern "C" __global__ void __launch_bounds__(256) f(Sum* sums) {
  Sum* own = sums + uint64_t(blockIdx.x) * kStretches;
  Sum carry = 0;
  for (uint32_t first = 0; first < kStretches; first += 256u) {
    const uint32_t s = first + threadIdx.x;
    const Sum x = s < kStretches ? own[s] : Sum(0);
    Sum earlier, all;
    block_scan(x, earlier, all);
    if (s < kStretches) own[s] = carry + earlier;
    carry += all;
  }
}
)";

constexpr const char* kSums = R"(
extern "C" __global__ void __launch_bounds__(256) f(const T* in, const Sum* sums, T* out) {
  const uint64_t line = blockIdx.x / kStretches;
  const uint32_t stretch = blockIdx.x % kStretches;
  Sum carry = kStretches > 1 ? sums[blockIdx.x] : Sum(0);
  for (uint32_t first = 0; first < kStretch; first += 256u) {
    const uint64_t j = uint64_t(stretch) * kStretch + first + threadIdx.x;
    Sum earlier, all;
    const Sum upto = block_scan(j < kN ? number(in[place(line, j)]) : Sum(0), earlier, all);
    if (j < kN) out[place(line, j)] = element(carry + upto);
    carry += all;
  }
}
)";

}  // namespace

std::vector<std::string> cumsum_texts(const KernelSpec& spec) {
  const ScanLines l(spec);
  const std::string head = common(l, spec);
  if (l.walked) return {head + kWalk};
  if (l.stretches() == 1) return {head + kBlockScan + kSums};
  return {head + kBlockScan + kSums, head + kBlockScan + kStretchSums, head + kBlockScan + kBeforeStretches};
}

Kernel cumsum_cuda(const KernelSpec& spec) {
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  const ScanLines l(spec);
  CudaStream* const lane = spec.cuda;
  std::vector<CudaFunction> functions;
  for (const std::string& text : cumsum_texts(spec)) functions.push_back(kernel_of(text, *lane));
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
