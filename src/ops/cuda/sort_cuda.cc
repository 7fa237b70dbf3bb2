// sort and top_k on the GPU. As on the CPU, a key is mapped to an unsigned integer of the requested order and compared
// together with its index. No two items are equal, so every sorting algorithm gives the stable order. A thread block
// sorts a range of a line (bitonic, in shared memory). Longer lines are merged from ranges, pass by pass; top_k keeps
// only the first k of every run.
#include <algorithm>
#include <memory>

#include "lane/cuda/code.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

constexpr int kSortThreads = 256;
constexpr int64_t kSortTile = 2048;  // items that a thread block sorts

// An array as [outer, n, inner], n along the axis; the result has the first `kept` of each line.
struct SortLines {
  int64_t n = 0, inner = 1, lines = 0, kept = 0;
  bool descending = true, top = false;

  SortLines(bool top_k, const KernelSpec& spec) : top(top_k) {
    const Type& x = spec.in[0];
    const int64_t axis = top ? x.rank() - 1 : spec.attrs.integer("axis");
    n = x.shape[static_cast<size_t>(axis)];
    inner = extent(x.shape, axis + 1, x.rank());
    lines = extent(x.shape, 0, axis) * inner;
    kept = top ? spec.attrs.integer("k") : n;
    if (!top) descending = spec.attrs.get<bool>("descending");
  }

  bool in_a_block() const { return n <= kSortTile; }
  // Items of a line in shared memory: a power of 2.
  int64_t padded() const {
    int64_t p = 2;
    while (p < std::min(n, kSortTile)) p *= 2;
    return p;
  }
  // Lines per thread block, if they are short.
  int64_t together() const {
    return in_a_block() ? std::clamp<int64_t>(512 / padded(), 1, std::max<int64_t>(lines, 1)) : 1;
  }
  int64_t tiles() const { return (n + kSortTile - 1) / kSortTile; }
  // The distance between runs of `width` keys.
  int64_t stride(int64_t width) const { return std::min(kept, width); }
};

// The text of a kernel that calls this function of Sort<>.
std::string sort_text(const SortLines& l, DType dtype, const std::string& parameters, const std::string& call) {
  return fmt::format(
      R"(#include "sort.cuh"
using namespace lockstep;
struct Lines {{
  using T = {memory};
  static constexpr uint64_t kN = {n}, kInner = {inner}, kLines = {lines}, kKept = {kept};
  static constexpr uint32_t kThreads = {threads}, kPadded = {padded}, kTogether = {together}, kTiles = {tiles};
  static constexpr bool kDescending = {descending};
}};
using Item = Sort<Lines>::Item;
extern "C" __global__ void __launch_bounds__({threads}) f({parameters}) {{
  Sort<Lines>::{call};
}}
)",
      fmt::arg("memory", memory_type(dtype)), fmt::arg("n", l.n), fmt::arg("inner", l.inner),
      fmt::arg("lines", l.lines), fmt::arg("kept", l.kept), fmt::arg("threads", kSortThreads),
      fmt::arg("padded", l.padded()), fmt::arg("together", l.together()),
      fmt::arg("tiles", l.in_a_block() ? 1 : l.tiles()), fmt::arg("descending", l.descending),
      fmt::arg("parameters", parameters), fmt::arg("call", call));
}

// Operands as parameters, each followed by a comma.
std::string operands(const KernelSpec& spec) {
  std::string out;
  for (size_t i = 0; i < spec.in.size(); ++i) out += fmt::format("const {}* in{}, ", memory_type(spec.in[i].dtype), i);
  return out;
}
std::string results(const KernelSpec& spec) {
  std::string out;
  for (size_t i = 0; i < spec.out.size(); ++i)
    out += fmt::format("{}{}* out{}", i ? ", " : "", memory_type(spec.out[i].dtype), i);
  return out;
}

// The function that writes position `i` of a line from its position `from`.
std::string take(const SortLines& l, const KernelSpec& spec) {
  std::string out = "[&](uint64_t line, uint64_t i, uint32_t from) {\n";
  if (l.top) {
    out +=
        "    out0[line * Lines::kKept + i] = in0[line * Lines::kN + from];\n"
        "    out1[line * Lines::kKept + i] = int32_t(from);\n";
  } else {
    out += "    const uint64_t first = Sort<Lines>::first_of(line);\n";
    for (size_t k = 0; k < spec.in.size(); ++k)
      out += fmt::format("    out{k}[first + i * Lines::kInner] = in{k}[first + uint64_t(from) * Lines::kInner];\n",
                         fmt::arg("k", k));
  }
  return out + "  }";
}

// The buffers and passes of a long line: the items before and after a pass.
struct Merges {
  struct Pass {
    uint64_t width, runs;
    int64_t blocks;
  };
  CudaFunction tiles, merge, take;
  BufferPtr a, b;
  std::vector<Pass> passes;
  int64_t tile_blocks = 0, take_blocks = 0;
};

}  // namespace

std::vector<std::string> sort_texts(bool top, const KernelSpec& spec) {
  const SortLines l(top, spec);
  const DType dtype = spec.in[0].dtype;
  const std::string arrays = operands(spec) + results(spec);
  if (l.in_a_block()) return {sort_text(l, dtype, arrays, fmt::format("sort_lines(in0, {})", take(l, spec)))};
  return {
      sort_text(l, dtype, "const Lines::T* in0, Item* runs", "sort_runs(in0, runs)"),
      sort_text(l, dtype, "const Item* from, Item* to, uint64_t width, uint64_t runs", "merge(from, to, width, runs)"),
      sort_text(l, dtype, "const Item* sorted, " + arrays, fmt::format("take_runs(sorted, {})", take(l, spec)))};
}

Kernel sort_kernel_cuda(bool top, const KernelSpec& spec) {
  const SortLines l(top, spec);
  if (count(spec.out[0].shape) == 0) return [](const void* const*, void* const*) {};
  CudaStream* const lane = spec.cuda;
  const std::vector<std::string> texts = sort_texts(top, spec);
  const size_t ins = spec.in.size(), outs = spec.out.size();
  if (l.in_a_block()) {
    const CudaFunction function = kernel_of(texts[0], *lane);
    const int64_t blocks = (l.lines + l.together() - 1) / l.together();
    return [=, arguments = std::vector<void*>(ins + outs)](const void* const* in, void* const* out) mutable {
      for (size_t i = 0; i < ins; ++i) arguments[i] = argument(in[i]);
      for (size_t o = 0; o < outs; ++o) arguments[ins + o] = argument(out[o]);
      function.launch(*lane, blocks, kSortThreads, arguments.data());
    };
  }
  auto m = std::make_shared<Merges>();
  m->tiles = kernel_of(texts[0], *lane);
  m->merge = kernel_of(texts[1], *lane);
  m->take = kernel_of(texts[2], *lane);
  m->tile_blocks = l.lines * l.tiles();
  m->take_blocks = (l.lines * l.kept + kSortThreads - 1) / kSortThreads;
  const auto items_of = [&](int64_t width, int64_t runs) { return l.lines * runs * l.stride(width); };
  int64_t most = items_of(kSortTile, l.tiles());
  for (int64_t width = kSortTile, runs = l.tiles(); runs > 1; width *= 2, runs = (runs + 1) / 2) {
    m->passes.push_back({static_cast<uint64_t>(width), static_cast<uint64_t>(runs),
                         (items_of(width, runs) + kSortThreads - 1) / kSortThreads});
    most = std::max(most, items_of(2 * width, (runs + 1) / 2));
  }
  const int64_t item_bytes = size_of(spec.in[0].dtype) == 8 ? 16 : 8;
  m->a = lane->allocate(most * item_bytes);
  m->b = lane->allocate(most * item_bytes);
  return [=, arguments = std::vector<void*>(1 + ins + outs)](const void* const* in, void* const* out) mutable {
    const void* from = m->a->data();
    const void* to = m->b->data();
    void* first[] = {argument(in[0]), argument(from)};
    m->tiles.launch(*lane, m->tile_blocks, kSortThreads, first);
    for (Merges::Pass& pass : m->passes) {
      void* merge[] = {argument(from), argument(to), &pass.width, &pass.runs};
      m->merge.launch(*lane, pass.blocks, kSortThreads, merge);
      std::swap(from, to);
    }
    arguments[0] = argument(from);
    for (size_t i = 0; i < ins; ++i) arguments[1 + i] = argument(in[i]);
    for (size_t o = 0; o < outs; ++o) arguments[1 + ins + o] = argument(out[o]);
    m->take.launch(*lane, m->take_blocks, kSortThreads, arguments.data());
  };
}

}  // namespace lockstep
