// scatter_add and scatter with many indices on the GPU: they are sorted together with their positions, and warps
// combine the updates of each row in order (kernels/scatter.cuh). There are no atomic additions.
#include <fmt/format.h>

#include "base/check.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/sort_text.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/index_places.h"

namespace lockstep {
namespace {

constexpr int64_t kRunUpdates = 32;  // Scatter::kRun

// x [lists, pre, n, post], indices [lists, places], updates [lists, pre, places, post].
struct Tables {
  int64_t lists, pre, n, post, places;
  DType dtype, index;
  std::string combined;  // of the numbers a and b

  explicit Tables(const KernelSpec& spec)
      : dtype(spec.in[0].dtype), index(spec.in[1].dtype), combined(scatter_combined(spec.attrs, "a", "b")) {
    const Type &x = spec.in[0], &indices = spec.in[1];
    const int64_t axis = spec.attrs.integer("axis"), batch_dims = spec.attrs.integer("batch_dims");
    lists = extent(x.shape, 0, batch_dims);
    pre = extent(x.shape, batch_dims, axis);
    n = x.shape[static_cast<size_t>(axis)];
    post = extent(x.shape, axis + 1, x.rank());
    places = extent(indices.shape, batch_dims, indices.rank());
  }
  // The number of columns that a thread adds, if the arrays are aligned to 16 bytes.
  int64_t vector(bool aligned) const {
    const int64_t all = 16 / size_of(dtype);
    return aligned && post % all == 0 ? all : 1;
  }
  int64_t partial_bytes() const {
    const int64_t windows = (places + kRunUpdates - 1) / kRunUpdates;
    return lists * pre * windows * 2 * post * std::max<int64_t>(size_of(dtype), 4);
  }
};

CudaStep scatter_step(const Tables& t, bool aligned, const char* parameters, const char* call,
                      std::vector<CudaStep::Argument> arguments) {
  CudaStep step;
  step.name = "scatter_add";
  step.prelude = fmt::format(
      R"(#include "scatter.cuh"
#include "sort.cuh"
using namespace lockstep;
struct Tables {{
  using T = {memory};
  using Index = {index};
  using Item = SortItem<{key}>;
  static constexpr uint64_t kLists = {lists}u, kPre = {pre}u, kN = {n}u, kPost = {post}u, kPlaces = {places}u;
  static constexpr int kVector = {vector};
  static constexpr uint32_t kThreads = {threads};
  template <class R>
  static R combined(R a, R b) {{
    return {combined};
  }}
}};
using T = Tables::T;
using Index = Tables::Index;
using Item = Tables::Item;
using R = Scatter<Tables>::R;
)",
      fmt::arg("memory", memory_type(t.dtype)), fmt::arg("index", memory_type(t.index)),
      fmt::arg("key", size_of(t.index) == 8 ? "uint64_t" : "uint32_t"), fmt::arg("lists", t.lists),
      fmt::arg("pre", t.pre), fmt::arg("n", t.n), fmt::arg("post", t.post), fmt::arg("places", t.places),
      fmt::arg("vector", t.vector(aligned)), fmt::arg("threads", kStepThreads), fmt::arg("combined", t.combined));
  step.parameters = parameters;
  step.body = fmt::format("  Scatter<Tables>::{};\n", call);
  step.arguments = std::move(arguments);
  const int64_t columns = 32 * t.vector(aligned), groups = (t.post + columns - 1) / columns;
  step.blocks = (t.lists * t.pre * t.places * groups * 32 + kStepThreads - 1) / kStepThreads;
  return step;
}

// The steps after the sort. Operands: x, the indices, the updates, the sorted items. Workspace: partial sums.
std::vector<CudaStep> scatter_steps(const Tables& t, bool aligned) {
  using Argument = CudaStep::Argument;
  const Argument x{Argument::operand, 0}, indices{Argument::operand, 1}, updates{Argument::operand, 2},
      items{Argument::operand, 3}, partial{Argument::workspace, 0}, out{Argument::result, 0};
  return {scatter_step(
              t, aligned, "const Item* items, const Index* indices, const T* x, const T* updates, R* partial, T* out",
              "combine_runs(items, indices, x, updates, partial, out)", {items, indices, x, updates, partial, out}),
          scatter_step(t, aligned, "const Item* items, const Index* indices, const T* x, const R* partial, T* out",
                       "combine_parts(items, indices, x, partial, out)", {items, indices, x, partial, out})};
}

bool is_aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

std::string scatter_combined(const Attrs& attrs, std::string_view element, std::string_view update) {
  switch (scatter_how(attrs)) {
    case ScatterHow::set:
      return std::string(update);
    case ScatterHow::multiply:
      return fmt::format("math::mul({}, {})", element, update);
    case ScatterHow::min:
      return fmt::format("math::minimum({}, {})", element, update);
    case ScatterHow::max:
      return fmt::format("math::maximum({}, {})", element, update);
    default:
      return fmt::format("math::add({}, {})", element, update);
  }
}

std::vector<std::string> scatter_sorted_texts(const KernelSpec& spec) {
  std::vector<std::string> out;
  for (const CudaStep& step : scatter_steps(Tables(spec), true)) out.push_back(text_of(step));
  return out;
}

Kernel scatter_sorted_cuda(const KernelSpec& spec) {
  const Tables t(spec);
  // The sort numbers them in 32 bits.
  if (t.places >= UINT32_MAX)
    throw_error("{}: {} updates of one array are too many for a GPU; split them",
                spec.attrs.find("how") ? "scatter" : "scatter_add", t.places);
  CudaStream* const lane = spec.cuda;
  const BufferPtr partial = lane->allocate(t.partial_bytes());
  // `other` is made by the first call with arrays that are not aligned.
  return [=, sorted = LineSort(SortLines(t.places, t.lists), t.index, *lane),
          add = LaunchedSteps(*lane, scatter_steps(t, true), {partial}), other = Kernel(),
          bytes = spec.in[0].bytes()](const void* const* in, void* const* out) mutable {
    const void* const all[] = {in[0], in[1], in[2], sorted(in[1])};
    if (in[0] != out[0]) lane->copy(out[0], in[0], bytes);
    if (is_aligned(in[0]) && is_aligned(in[2]) && is_aligned(out[0])) return add(all, out);
    if (!other) other = LaunchedSteps(*lane, scatter_steps(t, false), {partial});
    other(all, out);
  };
}

}  // namespace lockstep
