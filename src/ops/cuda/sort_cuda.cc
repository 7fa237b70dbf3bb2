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

std::string common(const SortLines& l, DType dtype) {
  const bool wide = size_of(dtype) == 8;
  const char* key = wide ? "uint64_t" : "uint32_t";
  std::string ordered;
  if (is_floating(dtype))
    ordered = fmt::format(
        "  if (x != x) return ~Key(0);\n"
        "  const Key bits = x == 0 ? Key(0) : __builtin_bit_cast(Key, x);\n"
        "  const Key key = bits & kSign ? ~bits : bits | kSign;\n");
  else
    ordered = fmt::format("  const Key key = Key(x){};\n", is_signed(dtype) ? " ^ kSign" : "");
  const char* item = wide ? R"(struct Item {
  uint64_t key;
  uint32_t place;
};
inline Item make(Key key, uint32_t place) { return {key, place}; }
inline uint32_t index_of(const Item& x) { return x.place; }
inline bool less(const Item& a, const Item& b) { return a.key != b.key ? a.key < b.key : a.place < b.place; }
)"
                          : R"(using Item = uint64_t;
inline Item make(Key key, uint32_t place) { return Item(key) << 32 | place; }
inline uint32_t index_of(Item x) { return uint32_t(x); }
inline bool less(Item a, Item b) { return a < b; }
)";
  return fmt::format(
      R"(#include "elements.h"
using namespace lockstep;
using Key = {key};
constexpr Key kSign = Key(1) << (sizeof(Key) * 8 - 1);
constexpr uint64_t kN = {n}, kInner = {inner}, kLines = {lines}, kKept = {kept};
inline Key ordered({number} x) {{
{ordered}  return {result};
}}
{item}inline uint64_t first_of(uint64_t line) {{ return line / kInner * kN * kInner + line % kInner; }}
)",
      fmt::arg("key", key), fmt::arg("n", l.n), fmt::arg("inner", l.inner), fmt::arg("lines", l.lines),
      fmt::arg("kept", l.kept), fmt::arg("number", register_name(dtype)), fmt::arg("ordered", ordered),
      fmt::arg("result", l.descending ? "Key(~key)" : "key"), fmt::arg("item", item));
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

// Writes position `i` of a line from its position `from`.
std::string take(const SortLines& l, const KernelSpec& spec) {
  if (l.top) return "out0[line * kKept + i] = in0[line * kN + from];\n      out1[line * kKept + i] = int32_t(from);\n";
  std::string out = "const uint64_t first = first_of(line);\n";
  for (size_t k = 0; k < spec.in.size(); ++k)
    out +=
        fmt::format("      out{k}[first + i * kInner] = in{k}[first + uint64_t(from) * kInner];\n", fmt::arg("k", k));
  return out;
}

// Sorts ranges. Writes the results of the row, or items if lines are longer than a range.
std::string tile_text(const SortLines& l, const KernelSpec& spec) {
  const std::string store = l.in_a_block()
                                ? fmt::format(
                                      R"(  for (uint32_t s = threadIdx.x; s < kTogether * kPadded; s += {threads}u) {{
    const uint64_t line = uint64_t(blockIdx.x) * kTogether + s / kPadded, i = s % kPadded;
    if (line < kLines && i < kKept) {{
      const uint32_t from = index_of(items[s]);
      {take}    }}
  }}
)",
                                      fmt::arg("threads", kSortThreads), fmt::arg("take", take(l, spec)))
                                : fmt::format(
                                      R"(  for (uint32_t s = threadIdx.x; s < kPadded; s += {threads}u)
    if (s < {stride}u) sorted[(line0 * {tiles}u + tile) * {stride}u + s] = items[s];
)",
                                      fmt::arg("threads", kSortThreads), fmt::arg("stride", l.stride(kSortTile)),
                                      fmt::arg("tiles", l.tiles()));
  return fmt::format(
      R"({common}constexpr uint32_t kPadded = {padded}, kTogether = {together}, kTiles = {tiles};
extern "C" __global__ void __launch_bounds__({threads}) f({parameters}) {{
  __shared__ Item items[kTogether * kPadded];
  const uint64_t line0 = blockIdx.x / kTiles * uint64_t(kTogether);
  const uint32_t tile = blockIdx.x % kTiles;
  for (uint32_t s = threadIdx.x; s < kTogether * kPadded; s += {threads}u) {{
    const uint64_t line = line0 + s / kPadded, i = uint64_t(tile) * kPadded + s % kPadded;
    items[s] = line < kLines && i < kN ? make(ordered(load(in0[first_of(line) + i * kInner])), uint32_t(i))
                                       : make(~Key(0), 0xffffffffu);
  }}
  for (uint32_t size = 2; size <= kPadded; size *= 2)
    for (uint32_t apart = size / 2; apart > 0; apart /= 2) {{
      __syncthreads();
      for (uint32_t s = threadIdx.x; s < kTogether * kPadded / 2; s += {threads}u) {{
        const uint32_t a = (s & ~(apart - 1)) * 2 + (s & (apart - 1)), b = a + apart;
        const bool up = (a % kPadded & size) == 0;
        const Item x = items[a], y = items[b];
        if (less(y, x) == up) {{
          items[a] = y;
          items[b] = x;
        }}
      }}
    }}
  __syncthreads();
{store}}}
)",
      fmt::arg("common", common(l, spec.in[0].dtype)), fmt::arg("padded", l.padded()),
      fmt::arg("together", l.together()), fmt::arg("tiles", l.in_a_block() ? 1 : l.tiles()),
      fmt::arg("threads", kSortThreads),
      fmt::arg("parameters", l.in_a_block()
                                 ? operands(spec) + results(spec)
                                 : fmt::format("const {}* in0, Item* sorted", memory_type(spec.in[0].dtype))),
      fmt::arg("store", store));
}

// Every item finds its position in the merged run: its position in its own run plus the number of smaller
// items in the other.
std::string merge_text(const SortLines& l, const KernelSpec& spec) {
  return fmt::format(
      R"({common}inline uint64_t length(uint64_t run, uint64_t width) {{
  const uint64_t begin = run * width;
  if (begin >= kN) return 0;
  const uint64_t keys = kN - begin < width ? kN - begin : width;
  return keys < kKept ? keys : kKept;
}}
extern "C" __global__ void __launch_bounds__({threads}) f(const Item* from, Item* to, uint64_t width, uint64_t runs) {{
  const uint64_t stride = kKept < width ? kKept : width, wider = kKept < 2 * width ? kKept : 2 * width;
  const uint64_t s = uint64_t(blockIdx.x) * {threads}u + threadIdx.x;
  if (s >= kLines * runs * stride) return;
  const uint64_t at = s % stride, run = s / stride % runs, line = s / stride / runs;
  if (at >= length(run, width)) return;
  const Item own = from[s];
  const Item* other = from + (line * runs + (run ^ 1)) * stride;
  uint64_t lo = 0, hi = length(run ^ 1, width);
  while (lo < hi) {{
    const uint64_t middle = (lo + hi) / 2;
    if (less(other[middle], own))
      lo = middle + 1;
    else
      hi = middle;
  }}
  if (at + lo < kKept) to[(line * ((runs + 1) / 2) + run / 2) * wider + at + lo] = own;
}}
)",
      fmt::arg("common", common(l, spec.in[0].dtype)), fmt::arg("threads", kSortThreads));
}

std::string take_text(const SortLines& l, const KernelSpec& spec) {
  return fmt::format(
      R"({common}extern "C" __global__ void __launch_bounds__({threads}) f(const Item* sorted, {parameters}) {{
  const uint64_t s = uint64_t(blockIdx.x) * {threads}u + threadIdx.x;
  if (s >= kLines * kKept) return;
  const uint64_t line = s / kKept, i = s % kKept;
  const uint32_t from = index_of(sorted[s]);
      {take}}}
)",
      fmt::arg("common", common(l, spec.in[0].dtype)), fmt::arg("threads", kSortThreads),
      fmt::arg("parameters", operands(spec) + results(spec)), fmt::arg("take", take(l, spec)));
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
  if (l.in_a_block()) return {tile_text(l, spec)};
  return {tile_text(l, spec), merge_text(l, spec), take_text(l, spec)};
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
