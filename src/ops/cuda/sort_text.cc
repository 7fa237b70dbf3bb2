#include "ops/cuda/sort_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/cuda/text.h"
#include "ops/dims.h"

namespace lockstep {

SortLines::SortLines(bool top_k, const KernelSpec& spec) : top(top_k) {
  const Type& x = spec.in[0];
  const int64_t axis = top ? x.rank() - 1 : spec.attrs.integer("axis");
  n = x.shape[static_cast<size_t>(axis)];
  inner = extent(x.shape, axis + 1, x.rank());
  lines = extent(x.shape, 0, axis) * inner;
  kept = top ? spec.attrs.integer("k") : n;
  if (!top) descending = spec.attrs.get<bool>("descending");
}

SortLines::SortLines(int64_t keys, int64_t count)
    : n(keys), lines(count), kept(keys), descending(false), as_runs(true) {}

int64_t SortLines::padded() const {
  int64_t p = 2;
  while (p < std::min(n, kSortTile)) p *= 2;
  return p;
}

int64_t SortLines::together() const {
  return in_a_block() ? std::clamp<int64_t>(512 / padded(), 1, std::max<int64_t>(lines, 1)) : 1;
}

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
extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters}) {{
  Sort<Lines>::{call};
}}
)",
      fmt::arg("name", kernel_name(l.top ? "top_k" : "sort")), fmt::arg("memory", memory_type(dtype)),
      fmt::arg("n", l.n), fmt::arg("inner", l.inner), fmt::arg("lines", l.lines), fmt::arg("kept", l.kept),
      fmt::arg("threads", kSortThreads), fmt::arg("padded", l.padded()), fmt::arg("together", l.together()),
      fmt::arg("tiles", l.in_a_block() ? 1 : l.tiles()), fmt::arg("descending", l.descending),
      fmt::arg("parameters", parameters), fmt::arg("call", call));
}

std::vector<std::string> line_sort_texts(const SortLines& l, DType dtype) {
  std::vector<std::string> out = {sort_text(l, dtype, "const Lines::T* in0, Item* runs", "sort_runs(in0, runs)")};
  if (l.tiles() > 1)
    out.push_back(sort_text(l, dtype, "const Item* from, Item* to, uint64_t width, uint64_t runs",
                            "merge(from, to, width, runs)"));
  return out;
}

// The buffers and passes: the items before and after a pass.
struct LineSort::State {
  struct Pass {
    uint64_t width, runs;
    int64_t blocks;
  };
  CudaStream& stream;
  CudaFunction tiles, merge;
  BufferPtr a, b;
  std::vector<Pass> passes;
  int64_t tile_blocks = 0;
};

LineSort::LineSort(const SortLines& l, DType dtype, CudaStream& stream)
    : state_(std::make_shared<State>(State{stream, {}, {}, {}, {}, {}})) {
  const std::vector<std::string> texts = line_sort_texts(l, dtype);
  for (const std::string& text : texts) begin_kernel(text, stream);
  State& s = *state_;
  s.tiles = kernel_of(texts[0], stream);
  if (texts.size() > 1) s.merge = kernel_of(texts[1], stream);
  s.tile_blocks = l.lines * l.tiles();
  const auto items_of = [&](int64_t width, int64_t runs) { return l.lines * runs * l.stride(width); };
  int64_t most = items_of(kSortTile, l.tiles());
  for (int64_t width = kSortTile, runs = l.tiles(); runs > 1; width *= 2, runs = (runs + 1) / 2) {
    s.passes.push_back({static_cast<uint64_t>(width), static_cast<uint64_t>(runs),
                        (items_of(width, runs) + kSortThreads - 1) / kSortThreads});
    most = std::max(most, items_of(2 * width, (runs + 1) / 2));
  }
  const int64_t item_bytes = size_of(dtype) == 8 ? 16 : 8;
  s.a = stream.allocate(most * item_bytes);
  if (!s.passes.empty()) s.b = stream.allocate(most * item_bytes);
}

const void* LineSort::operator()(const void* keys) const {
  State& s = *state_;
  const void* from = s.a->data();
  const void* to = s.b ? s.b->data() : nullptr;
  void* first[] = {argument(keys), argument(from)};
  s.tiles.launch(s.stream, s.tile_blocks, kSortThreads, first);
  for (State::Pass& pass : s.passes) {
    void* merge[] = {argument(from), argument(to), &pass.width, &pass.runs};
    s.merge.launch(s.stream, pass.blocks, kSortThreads, merge);
    std::swap(from, to);
  }
  return from;
}

}  // namespace lockstep
