// Ops that create or move elements, on the GPU: each thread computes the position from which its element is read.
#include <algorithm>
#include <memory>

#include "ops/cuda/cost_model.h"
#include "ops/cuda/elementwise_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// How the elements of a row's result are computed.
struct Move {
  std::string body;                                    // sets x to element i
  int64_t most = cost_model::kMovedElementsPerThread;  // elements in flight per thread
};
using MoveText = Move (*)(const GpuTask&);

const Type& operand_type(const GpuTask& task, size_t k) { return task.in[k].type; }
const Type& result_type(const GpuTask& task) { return task.out[0].type; }

// A step without text. Operands are parameters: "const float* in0, float* out0".
CudaStep move_step(const GpuTask& task) {
  CudaStep step;
  step.name = "move";
  step.prelude = "#include \"elements.cuh\"\nusing namespace lockstep;\n";
  for (size_t k = 0; k < task.in.size(); ++k) {
    step.parameters += fmt::format("const {}* in{}, ", memory_type(operand_type(task, k).dtype), k);
    step.arguments.push_back({CudaStep::Argument::operand, k});
  }
  step.parameters += fmt::format("{}* out0", memory_type(result_type(task).dtype));
  step.arguments.push_back({CudaStep::Argument::result, 0});
  return step;
}

template <MoveText kText>
std::optional<CudaStep> move_task_step(const GpuTask& task, const GpuTarget&) {
  if (count(result_type(task).shape) == 0) return {};
  const Move move = kText(task);
  const std::optional<CudaElements> elements = task_elements(task, result_type(task).shape, move.most);
  if (!elements) return {};
  const char* type = memory_type(result_type(task).dtype);
  CudaStep step = move_step(task);
  step.body = elements->text(type, fmt::format("{} x{{}};\n{}  r = x;\n", type, move.body), "  out0[i] = r;\n");
  step.blocks = elements->blocks();
  if (task.division != TaskDivision::tiles) return step;
  step.elements = elements->n;
  step.each = elements->of_thread;
  return step;
}

TaskTraits move_traits(const GpuTask& task, const GpuTarget&) {
  TaskTraits traits;
  traits.ranges = element_ranges(result_type(task).shape);
  return traits;
}

template <MoveText kText>
constexpr CudaTaskKind kMoveTask = {.step = move_task_step<kText>, .traits = move_traits};

// Moves vectors of `side` consecutive elements if the arrays are aligned to them; otherwise runs the task's step.
// `find` sets `from` to the address of the source of element `i`.
Kernel moved_wide(const GpuTask& task, int64_t side, const std::string& find, CudaStream& stream) {
  const std::string type = fmt::format("Side<{}, {}>", memory_type(result_type(task).dtype), side);
  const int64_t n = count(result_type(task).shape);
  const auto elements = CudaElements::flat(n / side, cost_model::kMovedElementsPerThread);
  CudaStep step = move_step(task);
  step.body = elements.text(
      type,
      fmt::format("  [&](const {0} i) {{\n{1}  r = *reinterpret_cast<const {2}*>(from);\n  }}({0}(i) * {3}u);\n",
                  index_type(n), find, type, side),
      fmt::format("  *reinterpret_cast<{}*>(out0 + {}(i) * {}u) = r;\n", type, index_type(n), side));
  step.blocks = elements.blocks();
  // `plain` is made by the first call with other arrays.
  return [wide = LaunchedSteps(stream, {std::move(step)}), plain = Kernel(), task, &stream](const void* const* in,
                                                                                            void* const* out) mutable {
    if ((reinterpret_cast<uintptr_t>(in[0]) | reinterpret_cast<uintptr_t>(out[0])) % 16 == 0) return wide(in, out);
    if (!plain) plain = launch_alone(gather_task, task, stream);
    plain(in, out);
  };
}

// The index along each dimension of element `i` of a dense array, as variables d0, d1, ...
std::string coordinates(const Shape& shape, const std::string& i) {
  const Dims strides = dense_strides(shape);
  std::string out;
  for (size_t d = 0; d < shape.size(); ++d)
    out += fmt::format("  const int64_t d{} = {} / {}u % {}u;\n", d, i, std::max<int64_t>(strides[d], 1), shape[d]);
  return out;
}

// The clamped start of a block along each dimension after the first `batch_dims`, as variables s0, s1, ...; `b` is the
// number of the batch element, `first` the operand with the first start.
std::string starts_text(const Shape& x, const Shape& block, int64_t batch_dims, size_t first) {
  std::string out;
  for (auto d = static_cast<size_t>(batch_dims); d < x.size(); ++d)
    out +=
        fmt::format("  int64_t s{d} = int64_t(in{k}[b]);\n  s{d} = s{d} < 0 ? 0 : s{d} > {last}ll ? {last}ll : s{d};\n",
                    fmt::arg("d", d), fmt::arg("k", first + d - static_cast<size_t>(batch_dims)),
                    fmt::arg("last", x[d] - block[d]));
  return out;
}

Move iota_text(const GpuTask& task) {
  const Type& type = result_type(task);
  const auto dim = static_cast<size_t>(task.attrs.integer("dim"));
  const int64_t inner = dense_strides(type.shape)[dim];
  const int64_t first = task.attrs.find("start") ? task.attrs.integer("start") : 0;
  return {.body = fmt::format("  x = Store<{}>::of(math::cast<{}>(int64_t(i / {}u % {}u) + {}ll));\n",
                              memory_type(type.dtype), register_name(type.dtype), inner, type.shape[dim], first)};
}

// The number of elements per 16-byte vector, if contiguous rows of `row` elements divide into such vectors; else 1.
int64_t move_vector_width(int64_t row, DType dtype) {
  const int64_t all = 16 / size_of(dtype);
  return row % all == 0 ? all : 1;
}

// Complete rows of a table, four elements at a time, at indices that are read or computed.
std::optional<CudaSource> rows_source(const Type& table, const Type& indices,
                                      const std::vector<ComputedOperand>& computed) {
  const int64_t rows = table.shape[0], row = count(table.shape) / std::max<int64_t>(rows, 1);
  if (rows == 0 || row == 0 || row % 4 != 0 || computed.size() > 1) return {};
  const char* type = memory_type(table.dtype);
  CudaSource out;
  out.type = type;
  out.operands = {0};
  out.types = {fmt::format("const {}*", type)};
  out.result_bytes = out.bytes = size_of(table.dtype);
  if (computed.empty()) {
    out.operands.push_back(1);
    out.types.push_back(fmt::format("const {}*", memory_type(indices.dtype)));
    out.body = fmt::format("  const auto y = in1[i / {}u];\n", row);
  } else {
    const CudaSource& source = computed[0].source;
    if (computed[0].operand != 1 || source.one.empty()) return {};
    for (size_t k = 0; k < source.operands.size(); ++k) {
      out.operands.push_back(computed[0].first + source.operands[k]);
      out.types.push_back(source.types[k]);
    }
    out.body = fmt::format("  {} y;\n  {}{}(i / {}u, y);\n", source.type, source.text(true),
                           source.applied([&](size_t k) { return fmt::format("in{}", computed[0].first + k); }), row);
  }
  const bool wide = indices.dtype != DType::i32 || rows * row > INT32_MAX;  // positions do not fit 32 bits
  out.body += fmt::format(
      "  {number} at = y;\n  at = at < 0 ? 0 : at > {number}({last}) ? {number}({last}) : at;\n"
      "  const Four<{type}> four = *reinterpret_cast<const Four<{type}>*>(in0 + (at * {number}({row}) + i % "
      "{row}u));\n"
      "#pragma unroll\n  for (int e = 0; e < 4; ++e) x[e] = four.v[e];\n",
      fmt::arg("number", wide ? "int64_t" : "int32_t"), fmt::arg("row", row), fmt::arg("last", rows - 1),
      fmt::arg("type", type));
  return out;
}

// Whether complete rows of a table are gathered.
bool gathers_rows(const GpuTask& task) {
  return task.attrs.integer("axis") == 0 && task.attrs.integer("batch_dims") == 0 && operand_type(task, 1).rank() > 0;
}

// x [batch, pre, n, post], indices [batch, places], slices [batch, pre, places, post].
struct Places {
  int64_t pre, n, post, places;

  explicit Places(const GpuTask& task) {
    const Type &x = operand_type(task, 0), &indices = operand_type(task, 1);
    const int64_t axis = task.attrs.integer("axis"), batch_dims = task.attrs.integer("batch_dims");
    pre = extent(x.shape, batch_dims, axis);
    n = x.shape[static_cast<size_t>(axis)];
    post = extent(x.shape, axis + 1, x.rank());
    places = extent(indices.shape, batch_dims, indices.rank());
  }
};

// Sets `from` to the address of the source of element `i`.
std::string gather_address(const GpuTask& task) {
  const Places p(task);
  return fmt::format(
      "  const uint64_t row = i / {post}u, outer = row / {places}u;\n"
      "  int64_t at = in1[outer / {pre}u * {places}u + row % {places}u];\n"
      "  at = at < 0 ? 0 : at > {last}ll ? {last}ll : at;\n"
      "  const {type}* const from = in0 + (outer * {n}u + at) * {post}u + i % {post}u;\n",
      fmt::arg("post", p.post), fmt::arg("places", p.places), fmt::arg("pre", p.pre), fmt::arg("last", p.n - 1),
      fmt::arg("n", p.n), fmt::arg("type", memory_type(operand_type(task, 0).dtype)));
}

Move gather_text(const GpuTask& task) { return {.body = gather_address(task) + "  x = *from;\n"}; }

TaskTraits gather_traits(const GpuTask& task, const GpuTarget& target) {
  TaskTraits traits = move_traits(task, target);
  traits.can_be_inlined = gathers_rows(task);
  if (gathers_rows(task)) traits.ranges.own = {1};
  return traits;
}

std::optional<CudaSource> gather_source(const GpuTask& task, const GpuTarget& target) {
  if (!gathers_rows(task)) return {};
  const std::optional<std::vector<ComputedOperand>> computed = computed_operands(task, target);
  return computed ? rows_source(operand_type(task, 0), operand_type(task, 1), *computed) : std::nullopt;
}

// Each element combines its own updates in the order of the indices, so the result is deterministic.
Move scatter_text(const GpuTask& task) {
  const Places p(task);
  const Type& x = operand_type(task, 0);
  const int64_t post = std::max<int64_t>(p.post, 1);
  return {.body = fmt::format(
              "  const uint64_t row = i / {post}u, outer = row / {n}u;\n"
              "  const {index}* at = in1 + outer / {pre}u * {places}u;\n"
              "  const {memory}* from = in2 + outer * {places}u * {post}u + i % {post}u;\n"
              "  {type} sum = load(in0[i]);\n"
              "  for (uint64_t p = 0; p < {places}u; ++p)\n"
              "    if (int64_t(at[p]) == int64_t(row % {n}u)) sum = {combined};\n"
              "  x = Store<{memory}>::of(sum);\n",
              fmt::arg("post", post), fmt::arg("n", std::max<int64_t>(p.n, 1)),
              fmt::arg("combined", scatter_combined(task.attrs, "sum", fmt::format("load(from[p * {}u])", post))),
              fmt::arg("pre", std::max<int64_t>(p.pre, 1)), fmt::arg("places", p.places),
              fmt::arg("index", memory_type(operand_type(task, 1).dtype)), fmt::arg("memory", memory_type(x.dtype)),
              fmt::arg("type", register_name(x.dtype))),
          .most = 1};
}

// Whether sorting the indices first is faster than comparing every element with every index.
bool sorts_indices(const GpuTask& task) {
  const int64_t elements = count(result_type(task).shape), places = Places(task).places;
  return places >= cost_model::kScatterFewIndices && elements > cost_model::kScatterComparisons / places;
}

std::optional<CudaStep> scatter_move_step(const GpuTask& task, const GpuTarget& target) {
  return sorts_indices(task) ? std::nullopt : move_task_step<scatter_text>(task, target);
}

Move concatenate_text(const GpuTask& task) {
  const auto axis = static_cast<size_t>(task.attrs.integer("axis"));
  const Shape& shape = result_type(task).shape;
  const int64_t inner = std::max<int64_t>(dense_strides(shape)[axis], 1), n = std::max<int64_t>(shape[axis], 1);
  std::string body =
      fmt::format("  const uint64_t outer = i / {}u, k = i / {}u % {}u, rest = i % {}u;\n", inner * n, inner, n, inner);
  int64_t at = 0;
  for (size_t o = 0; o < task.in.size(); ++o) {
    const int64_t own = operand_type(task, o).shape[axis];
    if (own == 0) continue;
    body +=
        fmt::format("  if (k >= {at}u && k < {end}u) x = in{o}[(outer * {own}u + (k - {at}u)) * {inner}u + rest];\n",
                    fmt::arg("at", at), fmt::arg("end", at + own), fmt::arg("o", o), fmt::arg("own", own),
                    fmt::arg("inner", inner));
    at += own;
  }
  return {.body = body};
}

Move pad_text(const GpuTask& task) {
  const Shape &x = operand_type(task, 0).shape, &y = result_type(task).shape;
  const Dims &lo = task.attrs.ints("lo"), &interior = task.attrs.ints("interior");
  const Dims strides = dense_strides(x);
  std::string body = coordinates(y, "i"), inside = "true", at = "0";
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t step = interior[d] + 1;
    body += fmt::format("  const int64_t p{d} = d{d} - ({lo}ll);\n", fmt::arg("d", d), fmt::arg("lo", lo[d]));
    inside += fmt::format(" && p{d} >= 0 && p{d} % {step}ll == 0 && p{d} / {step}ll < {n}ll", fmt::arg("d", d),
                          fmt::arg("step", step), fmt::arg("n", x[d]));
    at += fmt::format(" + p{} / {}ll * {}ll", d, step, strides[d]);
  }
  return {.body = body + fmt::format("  x = {} ? in0[{}] : in1[0];\n", inside, at)};
}

Move dynamic_slice_text(const GpuTask& task) {
  const int64_t k = task.attrs.integer("batch_dims");
  const Shape &x = operand_type(task, 0).shape, &block = result_type(task).shape;
  const Dims strides = dense_strides(x);
  std::string body = fmt::format("  const uint64_t b = i / {}u;\n",
                                 std::max<int64_t>(extent(block, k, static_cast<int64_t>(block.size())), 1));
  body += coordinates(block, "i") + starts_text(x, block, k, 1);
  std::string at = "0";
  for (size_t d = 0; d < x.size(); ++d)
    at += static_cast<int64_t>(d) < k ? fmt::format(" + d{} * {}ll", d, strides[d])
                                      : fmt::format(" + (d{} + s{}) * {}ll", d, d, strides[d]);
  return {.body = body + fmt::format("  x = in0[{}];\n", at)};
}

Move update_slice_text(const GpuTask& task) {
  const int64_t k = task.attrs.integer("batch_dims");
  const Shape &x = operand_type(task, 0).shape, &block = operand_type(task, 1).shape;
  const Dims strides = dense_strides(block);
  std::string body = fmt::format("  const uint64_t b = i / {}u;\n",
                                 std::max<int64_t>(extent(x, k, static_cast<int64_t>(x.size())), 1));
  body += coordinates(x, "i") + starts_text(x, block, k, 2);
  std::string inside = "true", at = "0";
  for (size_t d = 0; d < x.size(); ++d) {
    const std::string p = static_cast<int64_t>(d) < k ? fmt::format("d{}", d) : fmt::format("(d{} - s{})", d, d);
    if (static_cast<int64_t>(d) >= k) inside += fmt::format(" && {} >= 0 && {} < {}ll", p, p, block[d]);
    at += fmt::format(" + {} * {}ll", p, strides[d]);
  }
  return {.body = body + fmt::format("  x = {} ? in1[{}] : in0[i];\n", inside, at)};
}

}  // namespace

constinit const CudaTaskKind iota_task = kMoveTask<iota_text>;
constinit const CudaTaskKind gather_task = {
    .step = move_task_step<gather_text>, .traits = gather_traits, .source = gather_source};
constinit const CudaTaskKind scatter_task = {.step = scatter_move_step, .traits = move_traits};
constinit const CudaTaskKind concatenate_task = kMoveTask<concatenate_text>;
constinit const CudaTaskKind pad_task = kMoveTask<pad_text>;
constinit const CudaTaskKind dynamic_slice_task = kMoveTask<dynamic_slice_text>;
constinit const CudaTaskKind update_slice_task = kMoveTask<update_slice_text>;

Kernel full_cuda(const KernelSpec& spec) { return elementwise_cuda(full_op, spec); }
Kernel iota_cuda(const KernelSpec& spec) { return launch_alone(iota_task, task_of(spec), *spec.cuda); }
Kernel gather_cuda(const KernelSpec& spec) {
  const GpuTask task = task_of(spec);
  if (count(spec.out[0].shape) == 0) return launch_alone(gather_task, task, *spec.cuda);
  const int64_t side = move_vector_width(Places(task).post, spec.in[0].dtype);
  return side > 1 ? moved_wide(task, side, gather_address(task), *spec.cuda)
                  : launch_alone(gather_task, task, *spec.cuda);
}
Kernel scatter_cuda(const KernelSpec& spec) {
  const GpuTask task = task_of(spec);
  return sorts_indices(task) ? scatter_sorted_cuda(spec) : launch_alone(scatter_task, task, *spec.cuda);
}
Kernel concatenate_cuda(const KernelSpec& spec) { return launch_alone(concatenate_task, task_of(spec), *spec.cuda); }
Kernel pad_cuda(const KernelSpec& spec) { return launch_alone(pad_task, task_of(spec), *spec.cuda); }
Kernel dynamic_slice_cuda(const KernelSpec& spec) {
  return launch_alone(dynamic_slice_task, task_of(spec), *spec.cuda);
}
Kernel update_slice_cuda(const KernelSpec& spec) { return launch_alone(update_slice_task, task_of(spec), *spec.cuda); }

}  // namespace lockstep
