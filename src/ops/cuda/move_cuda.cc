// Ops that create or move elements, on the GPU: each thread computes the position from which its element is read.
#include <algorithm>
#include <memory>

#include "ops/cuda/kernels.h"
#include "ops/cuda/step.h"
#include "ops/cuda/text.h"
#include "ops/dims.h"
#include "ops/ops.h"

namespace lockstep {
namespace {

// A kernel that computes element by element, at most `most` per thread: `body` sets x, element i. `own`: operands of
// which a range of the result along its first dimension needs only the same range.
Kernel per_element(const KernelSpec& spec, const std::string& parameters, const std::string& body, int64_t most = 4,
                   std::vector<size_t> own = {}, decltype(SteppedWays::source) source = {}, Kernel apart = {}) {
  const int64_t n = count(spec.out[0].shape);
  if (n == 0) return [](const void* const*, void* const*) {};
  const char* type = memory_type(spec.out[0].dtype);
  CudaStep step;
  step.name = "move";
  step.prelude = "#include \"elements.cuh\"\nusing namespace lockstep;\n";
  step.parameters = fmt::format("{}{}* out0", parameters, type);
  if (!parameters.empty())
    for (size_t k = 0; k < spec.in.size(); ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
  step.arguments.push_back({CudaStep::Argument::result, 0});
  const auto done = [step, type, body](const CudaElements& elements) {
    CudaStep out = step;
    out.body = elements.text(type, fmt::format("{} x{{}};\n{}  r = x;\n", type, body), "  out0[i] = r;\n");
    out.blocks = elements.blocks();
    return out;
  };
  const auto elements = CudaElements::flat(n, most);
  CudaStep flat = done(elements);
  flat.elements = n;
  flat.each = elements.of_thread;
  CudaRanges ranges;
  if (spec.out[0].rank() > 0)
    ranges = {
        .most = spec.out[0].shape[0],
        .least = CudaElements::least_ranges(n),
        .own = std::move(own),
        .step = [done, n, most](int64_t count) { return done(CudaElements::in_ranges(n, most, count)); },
        .by_warp = [done, n, most](int64_t count) { return done(CudaElements::in_ranges(n, most, count, true)); }};
  return SteppedKernel(spec.cuda, {std::move(flat)}, {},
                       {.apart = std::move(apart), .ranges = std::move(ranges), .source = std::move(source)});
}

// Operands as parameters: "const float* in0, ".
std::string parameters(Types in) {
  std::string out;
  for (size_t k = 0; k < in.size(); ++k) out += fmt::format("const {}* in{}, ", memory_type(in[k].dtype), k);
  return out;
}

// Moves vectors of `side` consecutive elements if the arrays are aligned to them; otherwise runs `plain`. `find` sets
// `from` to the address of the source of element `i`.
Kernel moved_wide(const KernelSpec& spec, int64_t side, const std::string& find, Kernel plain) {
  const std::string type = fmt::format("Side<{}, {}>", memory_type(spec.out[0].dtype), side);
  const int64_t n = count(spec.out[0].shape);
  const auto elements = CudaElements::flat(n / side, 4);
  CudaStep step;
  step.name = "move";
  step.prelude = "#include \"elements.cuh\"\nusing namespace lockstep;\n";
  step.parameters = fmt::format("{}{}* out0", parameters(spec.in), memory_type(spec.out[0].dtype));
  for (size_t k = 0; k < spec.in.size(); ++k) step.arguments.push_back({CudaStep::Argument::operand, k});
  step.arguments.push_back({CudaStep::Argument::result, 0});
  step.body = elements.text(
      type,
      fmt::format("  [&](const {0} i) {{\n{1}  r = *reinterpret_cast<const {2}*>(from);\n  }}({0}(i) * {3}u);\n",
                  index_type(n), find, type, side),
      fmt::format("  *reinterpret_cast<{}*>(out0 + {}(i) * {}u) = r;\n", type, index_type(n), side));
  step.blocks = elements.blocks();
  return [wide = SteppedKernel(spec.cuda, {std::move(step)}), plain = std::move(plain)](const void* const* in,
                                                                                        void* const* out) {
    const bool even = (reinterpret_cast<uintptr_t>(in[0]) | reinterpret_cast<uintptr_t>(out[0])) % 16 == 0;
    if (even)
      wide(in, out);
    else
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

}  // namespace

Kernel full_cuda(const KernelSpec& spec) { return elementwise_cuda(full_op, spec); }

Kernel iota_cuda(const KernelSpec& spec) {
  const Type& type = spec.out[0];
  const auto dim = static_cast<size_t>(spec.attrs.integer("dim"));
  const int64_t inner = dense_strides(type.shape)[dim];
  const int64_t first = spec.attrs.find("start") ? spec.attrs.integer("start") : 0;
  return per_element(spec, "",
                     fmt::format("  x = Store<{}>::of(math::cast<{}>(int64_t(i / {}u % {}u) + {}ll));\n",
                                 memory_type(type.dtype), register_name(type.dtype), inner, type.shape[dim], first));
}

// The number of elements per 16-byte vector, if contiguous rows of `row` elements divide into such vectors; else 1.
int64_t move_vector_width(int64_t row, DType dtype) {
  const int64_t all = 16 / size_of(dtype);
  return row % all == 0 ? all : 1;
}

// Complete rows of a table, four elements at a time, at indices that are read or computed.
std::optional<CudaSource> rows_source(const Type& table, const Type& indices,
                                      const std::vector<CudaSourced>& computed) {
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
    const CudaSource& source = *computed[0].source;
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

// x [batch, pre, n, post], indices [batch, places], slices [batch, pre, places, post].
Kernel gather_cuda(const KernelSpec& spec) {
  const Type &x = spec.in[0], &indices = spec.in[1];
  const int64_t axis = spec.attrs.integer("axis"), batch_dims = spec.attrs.integer("batch_dims");
  const int64_t pre = extent(x.shape, batch_dims, axis), n = x.shape[static_cast<size_t>(axis)];
  const int64_t post = extent(x.shape, axis + 1, x.rank()), places = extent(indices.shape, batch_dims, indices.rank());
  const bool rows = axis == 0 && batch_dims == 0 && indices.rank() > 0;
  decltype(SteppedWays::source) source;
  if (rows)
    source = [x, indices](const std::vector<CudaSourced>& computed) { return rows_source(x, indices, computed); };
  const std::string find = fmt::format(
      "  const uint64_t row = i / {post}u, outer = row / {places}u;\n"
      "  int64_t at = in1[outer / {pre}u * {places}u + row % {places}u];\n"
      "  at = at < 0 ? 0 : at > {last}ll ? {last}ll : at;\n"
      "  const {type}* const from = in0 + (outer * {n}u + at) * {post}u + i % {post}u;\n",
      fmt::arg("post", post), fmt::arg("places", places), fmt::arg("pre", pre), fmt::arg("last", n - 1),
      fmt::arg("n", n), fmt::arg("type", memory_type(x.dtype)));
  const std::string body = find + "  x = *from;\n";
  Kernel apart;
  if (const int64_t side = move_vector_width(post, x.dtype); side > 1 && places > 0)
    apart = moved_wide(spec, side, find, per_element(spec, parameters(spec.in), body));
  return per_element(spec, parameters(spec.in), body, 4, rows ? std::vector<size_t>{1} : std::vector<size_t>(),
                     std::move(source), std::move(apart));
}

// Each element adds its own updates in the order of the indices, so the result is deterministic.
Kernel scatter_add_cuda(const KernelSpec& spec) {
  const Type &x = spec.in[0], &indices = spec.in[1];
  const int64_t axis = spec.attrs.integer("axis"), batch_dims = spec.attrs.integer("batch_dims");
  const int64_t pre = extent(x.shape, batch_dims, axis), n = x.shape[static_cast<size_t>(axis)];
  const int64_t post = extent(x.shape, axis + 1, x.rank()), places = extent(indices.shape, batch_dims, indices.rank());
  return per_element(
      spec, parameters(spec.in),
      fmt::format("  const uint64_t row = i / {post}u, outer = row / {n}u;\n"
                  "  const {index}* at = in1 + outer / {pre}u * {places}u;\n"
                  "  const {memory}* from = in2 + outer * {places}u * {post}u + i % {post}u;\n"
                  "  {type} sum = load(in0[i]);\n"
                  "  for (uint64_t p = 0; p < {places}u; ++p)\n"
                  "    if (int64_t(at[p]) == int64_t(row % {n}u)) sum = math::add(sum, load(from[p * {post}u]));\n"
                  "  x = Store<{memory}>::of(sum);\n",
                  fmt::arg("post", std::max<int64_t>(post, 1)), fmt::arg("n", std::max<int64_t>(n, 1)),
                  fmt::arg("pre", std::max<int64_t>(pre, 1)), fmt::arg("places", places),
                  fmt::arg("index", memory_type(indices.dtype)), fmt::arg("memory", memory_type(x.dtype)),
                  fmt::arg("type", register_name(x.dtype))),
      1);
}

Kernel concatenate_cuda(const KernelSpec& spec) {
  const auto axis = static_cast<size_t>(spec.attrs.integer("axis"));
  const Shape& shape = spec.out[0].shape;
  const int64_t inner = std::max<int64_t>(dense_strides(shape)[axis], 1), n = std::max<int64_t>(shape[axis], 1);
  std::string body =
      fmt::format("  const uint64_t outer = i / {}u, k = i / {}u % {}u, rest = i % {}u;\n", inner * n, inner, n, inner);
  int64_t at = 0;
  for (size_t o = 0; o < spec.in.size(); ++o) {
    const int64_t own = spec.in[o].shape[axis];
    if (own == 0) continue;
    body +=
        fmt::format("  if (k >= {at}u && k < {end}u) x = in{o}[(outer * {own}u + (k - {at}u)) * {inner}u + rest];\n",
                    fmt::arg("at", at), fmt::arg("end", at + own), fmt::arg("o", o), fmt::arg("own", own),
                    fmt::arg("inner", inner));
    at += own;
  }
  return per_element(spec, parameters(spec.in), body);
}

Kernel pad_cuda(const KernelSpec& spec) {
  const Shape &x = spec.in[0].shape, &y = spec.out[0].shape;
  const Dims &lo = spec.attrs.ints("lo"), &interior = spec.attrs.ints("interior");
  const Dims strides = dense_strides(x);
  std::string body = coordinates(y, "i"), inside = "true", at = "0";
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t step = interior[d] + 1;
    body += fmt::format("  const int64_t p{d} = d{d} - ({lo}ll);\n", fmt::arg("d", d), fmt::arg("lo", lo[d]));
    inside += fmt::format(" && p{d} >= 0 && p{d} % {step}ll == 0 && p{d} / {step}ll < {n}ll", fmt::arg("d", d),
                          fmt::arg("step", step), fmt::arg("n", x[d]));
    at += fmt::format(" + p{} / {}ll * {}ll", d, step, strides[d]);
  }
  return per_element(spec, parameters(spec.in), body + fmt::format("  x = {} ? in0[{}] : in1[0];\n", inside, at));
}

Kernel dynamic_slice_cuda(const KernelSpec& spec) {
  const int64_t k = spec.attrs.integer("batch_dims");
  const Shape &x = spec.in[0].shape, &block = spec.out[0].shape;
  const Dims strides = dense_strides(x);
  std::string body = fmt::format("  const uint64_t b = i / {}u;\n",
                                 std::max<int64_t>(extent(block, k, static_cast<int64_t>(block.size())), 1));
  body += coordinates(block, "i") + starts_text(x, block, k, 1);
  std::string at = "0";
  for (size_t d = 0; d < x.size(); ++d)
    at += static_cast<int64_t>(d) < k ? fmt::format(" + d{} * {}ll", d, strides[d])
                                      : fmt::format(" + (d{} + s{}) * {}ll", d, d, strides[d]);
  return per_element(spec, parameters(spec.in), body + fmt::format("  x = in0[{}];\n", at));
}

Kernel update_slice_cuda(const KernelSpec& spec) {
  const int64_t k = spec.attrs.integer("batch_dims");
  const Shape &x = spec.in[0].shape, &block = spec.in[1].shape;
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
  return per_element(spec, parameters(spec.in), body + fmt::format("  x = {} ? in1[{}] : in0[i];\n", inside, at));
}

}  // namespace lockstep
