// Rotary positions on the GPU. A thread computes the angles of a few adjacent pairs once, and rotates these pairs of
// several heads.
#include <algorithm>

#include "lane/cuda/code.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/rotary.h"

namespace lockstep {
namespace {

constexpr int kRotaryThreads = 256;
constexpr int64_t kRotaryHeads = 4;  // heads per thread

struct RotaryLayout {
  int64_t tokens = 0, heads = 0, vector = 1, vectors = 0, of_thread = 1, groups = 0, total = 0;

  explicit RotaryLayout(const Type& x) : tokens(x.shape[1]), heads(x.shape[2]) {
    const int64_t half = x.shape[3] / 2;
    while (vector * 2 * size_of(x.dtype) <= 16 && half % (vector * 2) == 0) vector *= 2;
    vectors = half / vector;
    of_thread = std::clamp<int64_t>(heads, 1, kRotaryHeads);
    groups = (heads + of_thread - 1) / of_thread;
    total = x.shape[0] * tokens * groups * vectors;
  }
};

}  // namespace

std::string rotary_text(const KernelSpec& spec) {
  const RotaryLayout l(spec.in[0]);
  return fmt::format(
      R"(#include "rotary.cuh"
using namespace lockstep;
struct Heads {{
  using T = {memory};
  using R = {number};
  static constexpr uint64_t kTokens = {tokens}, kAllHeads = {heads}, kHeads = {of_thread}, kHeadGroups = {groups},
                            kVectors = {vectors}, kTotal = {total};
  static constexpr int kVector = {vector}, kThreads = {threads};
  static constexpr bool kInverse = {inverse};
}};
extern "C" __global__ void __launch_bounds__({threads}) {name}(const Heads::T* x, const int32_t* positions, const Heads::R* frequencies, Heads::T* y) {{
  Rotary<Heads>::rotate(x, positions, frequencies, y);
}}
)",
      fmt::arg("name", kernel_name("rotary")), fmt::arg("memory", memory_type(spec.in[0].dtype)),
      fmt::arg("number", register_name(spec.in[0].dtype)), fmt::arg("tokens", l.tokens), fmt::arg("heads", l.heads),
      fmt::arg("of_thread", l.of_thread), fmt::arg("groups", l.groups), fmt::arg("vectors", l.vectors),
      fmt::arg("total", l.total), fmt::arg("vector", l.vector), fmt::arg("threads", kRotaryThreads),
      fmt::arg("inverse", spec.attrs.get<bool>("inverse")));
}

Kernel rotary_cuda(const KernelSpec& spec) {
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  CudaStream* const lane = spec.cuda;
  const bool wide = spec.in[0].dtype == DType::f64;
  const std::vector<double> exact =
      rotary_frequencies(spec.in[0].shape[3], spec.attrs.get<double>("base"), wide ? DType::f64 : DType::f32);
  const std::vector<float> rounded(exact.begin(), exact.end());
  const int64_t bytes = static_cast<int64_t>(exact.size()) * (wide ? 8 : 4);
  const BufferPtr frequencies = lane->allocate(bytes);
  lane->to_device(frequencies->data(), wide ? static_cast<const void*>(exact.data()) : rounded.data(), bytes);
  const int64_t blocks = (RotaryLayout(spec.in[0]).total + kRotaryThreads - 1) / kRotaryThreads;
  return [=, function = kernel_of(rotary_text(spec), *lane)](const void* const* in, void* const* out) {
    const void* table = frequencies->data();
    void* arguments[] = {argument(in[0]), argument(in[1]), argument(table), argument(out[0])};
    function.launch(*lane, blocks, kRotaryThreads, arguments);
  };
}

}  // namespace lockstep
