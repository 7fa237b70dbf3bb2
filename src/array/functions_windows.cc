#include <algorithm>

#include "array/apply.h"
#include "array/promote.h"
#include "array/windows.h"
#include "base/check.h"
#include "lockstep/convolution.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "ops/window_reduce.h"

namespace lockstep {
namespace detail {

std::vector<int64_t> extents_of(const char* what, const char* name, const WindowExtents& given, size_t n) {
  std::vector<int64_t> out = given.values;
  if (out.empty()) out.assign(n, 1);
  if (out.size() == 1) out.assign(n, out[0]);
  if (out.size() != n)
    throw_error("{}: {} is {}, for {} dimension{}; give a number for each, or one for all", what, name, to_string(out),
                n, n == 1 ? "" : "s");
  for (const int64_t v : out)
    if (v < 1 || v > INT32_MAX)
      throw_error("{}: {} is {}; each number must be at least 1 and fit 31 bits", what, name, to_string(out));
  return out;
}

namespace {

void set_same_padding(WindowDim& dim, int64_t extent, bool lower) {
  const int64_t windows = (extent + dim.stride - 1) / dim.stride;
  const int64_t total = std::max<int64_t>((windows - 1) * dim.stride + dim.span() - extent, 0);
  dim.low = lower ? total - total / 2 : total / 2;
  dim.high = total - dim.low;
}

void set_padding(const char* what, std::vector<WindowDim>& dims, const std::vector<int64_t>& extents,
                 const WindowPadding& padding) {
  using Kind = WindowPadding::Kind;
  if (padding.kind == Kind::valid) return;
  if (padding.kind == Kind::explicit_widths && padding.widths.size() != dims.size())
    throw_error("{}: padding has {} pairs of widths for {} dimensions; give {{before, after}} for each, or one number",
                what, padding.widths.size(), dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    if (padding.kind == Kind::explicit_widths || padding.kind == Kind::equal_widths) {
      const auto [low, high] = padding.widths[padding.kind == Kind::equal_widths ? 0 : d];
      dims[d].low = low;
      dims[d].high = high;
    } else {
      if (dims[d].base_dilation > 1)
        throw_error("{}: padding \"SAME\" with a dilated input; give the widths, or use conv_transpose", what);
      set_same_padding(dims[d], extents[d], padding.kind == Kind::same_lower);
    }
  }
}

}  // namespace

std::vector<WindowDim> window_dims(const char* what, const std::vector<int64_t>& extents, const WindowGeometry& g) {
  const size_t n = extents.size();
  const std::vector<int64_t> strides = extents_of(what, "the stride", g.strides, n),
                             base = extents_of(what, "the dilation of the input", g.base_dilation, n),
                             dilation = extents_of(what, "the dilation of the window", g.window_dilation, n);
  std::vector<WindowDim> dims(n);
  for (size_t d = 0; d < n; ++d)
    dims[d] = {.window = g.window[d], .stride = strides[d], .base_dilation = base[d], .window_dilation = dilation[d]};
  set_padding(what, dims, extents, g.padding);
  for (size_t d = 0; d < n; ++d) {
    if (dims[d].window < 1)
      throw_error("{}: the window is {}; each extent must be at least 1", what, to_string(g.window));
    const int64_t padded = dims[d].padded(extents[d]);
    if (dims[d].span() > padded && (dims[d].span() > 1 || extents[d] > 0))  // no windows over nothing are fine
      throw_error(
          "{}: the window {} spans {} along dimension {} of {}, which has {} with padding; pad more, or use a smaller "
          "window or dilation",
          what, to_string(g.window), dims[d].span(), d, to_string(extents), padded);
  }
  return dims;
}

}  // namespace detail

namespace {

WindowKind kind_of(WindowOp op) {
  switch (op) {
    case WindowOp::add:
      return WindowKind::add;
    case WindowOp::mul:
      return WindowKind::mul;
    case WindowOp::max:
      return WindowKind::max;
    case WindowOp::min:
      break;
  }
  return WindowKind::min;
}

Value combined(WindowKind kind, Value a, Value b) {
  switch (kind) {
    case WindowKind::add:
      return add(a, b);
    case WindowKind::mul:
      return mul(a, b);
    case WindowKind::max:
      return maximum(a, b);
    case WindowKind::min:
      break;
  }
  return minimum(a, b);
}

bool is_identity(Value init, WindowKind kind) {
  const Attr* given = full_value(init);
  if (!given) return false;
  const Attr value = *given;
  Builder b;
  return *full_value(window_identity(b, init.dtype(), kind)) == value;
}

// The windows of pooling over all dimensions of x.
std::vector<WindowDim> pool_dims(const char* what, const Shape& x, const PoolOptions& options) {
  const size_t given = options.window.values.size(), rank = x.size();
  const size_t n = given > 1 ? given : rank < 2 ? 0 : rank - 2;
  if (n < 1 || n > 3 || n + 1 > rank)
    throw_error(
        "{}: the images are {}; they must be [n, w, c], [n, h, w, c] or [n, d, h, w, c]: use expand_dims to add "
        "dimensions",
        what, to_string(x));
  const auto first = x.end() - static_cast<std::ptrdiff_t>(n) - 1;
  const std::vector<int64_t> spatial(first, x.end() - 1);
  const std::vector<int64_t> window = detail::extents_of(what, "the window", options.window, n);
  const bool tiles = options.stride.values == std::vector<int64_t>{0};
  const WindowExtents one, strides = tiles ? WindowExtents(window) : options.stride;
  const std::vector<WindowDim> inner = detail::window_dims(what, spatial, {window, strides, options.padding, one, one});
  std::vector<WindowDim> dims(rank);
  std::copy(inner.begin(), inner.end(), dims.end() - static_cast<std::ptrdiff_t>(n) - 1);
  return dims;
}

// The number of elements of x in each window, with 1 for dimensions without windows.
Value window_sizes(Builder& b, DType dtype, const Shape& x, const std::vector<WindowDim>& dims) {
  Shape windowed = x;
  for (size_t d = 0; d < x.size(); ++d)
    if (dims[d].window == 1 && dims[d].stride == 1 && dims[d].low == 0 && dims[d].high == 0) windowed[d] = 1;
  return window_reduce(full(b, {dtype, windowed}, 1), WindowKind::add, dims);
}

}  // namespace

WindowPadding::WindowPadding(std::initializer_list<PaddingWidths> each) : kind(Kind::explicit_widths) {
  for (const PaddingWidths& one : each) widths.emplace_back(one.before, one.after);
}

WindowPadding::WindowPadding(std::string_view name, SourceLine at, int)
    : kind(name == "SAME"         ? Kind::same
           : name == "SAME_LOWER" ? Kind::same_lower
                                  : Kind::valid) {
  const detail::CallerLine line(at);
  if (name != "SAME" && name != "SAME_LOWER" && name != "VALID")
    throw_error(
        "padding: \"{}\" is neither \"SAME\", \"SAME_LOWER\" nor \"VALID\"; use one of these, a number, or widths "
        "{{{{before, after}}, ...}}",
        name);
}

Array reduce_window(const Operand& x, const Operand& init, WindowOp op, const ReduceWindowOptions& options) {
  constexpr const char* kWhat = "reduce_window";
  if (init.rank() != 0) throw_error("{}: the initial value is {}; it must be a scalar", kWhat, to_string(init.shape()));
  const WindowKind kind = kind_of(op);
  const std::vector<WindowDim> dims =
      detail::window_dims(kWhat, x.shape(),
                          {detail::extents_of(kWhat, "the window", options.window_dimensions, x.shape().size()),
                           options.window_strides, options.padding, options.base_dilation, options.window_dilation});
  const Array both[] = {x, init};
  const DType dtype = detail::common_dtype(both);
  if (dtype == DType::boolean && (op == WindowOp::add || op == WindowOp::mul))
    throw_error("{}: {} has no arithmetic; use WindowOp::max or min, or convert it to a number", kWhat,
                to_string(x.type()));
  return detail::apply1(
      kWhat, {x, init},
      [&](Builder&, const Values& v) {
        const Value images = detail::convert(v[0], dtype), start = detail::convert(v[1], dtype);
        if (is_identity(start, kind)) return window_reduce(images, kind, dims);
        const Value y = window_reduce(images, kind, dims, start);
        return combined(kind, y, detail::broadcast_value(kWhat, start, y.shape()));
      },
      dtype);
}

Array max_pool(const Operand& x, const PoolOptions& options) {
  const std::vector<WindowDim> dims = pool_dims("max_pool", x.shape(), options);
  return detail::apply1("max_pool", {x},
                        [&](Builder&, const Values& v) { return window_reduce(v[0], WindowKind::max, dims); });
}

Array min_pool(const Operand& x, const PoolOptions& options) {
  const std::vector<WindowDim> dims = pool_dims("min_pool", x.shape(), options);
  return detail::apply1("min_pool", {x},
                        [&](Builder&, const Values& v) { return window_reduce(v[0], WindowKind::min, dims); });
}

Array avg_pool(const Operand& x, const PoolOptions& options) {
  const std::vector<WindowDim> dims = pool_dims("avg_pool", x.shape(), options);
  return detail::apply1("avg_pool", {x}, [&](Builder& b, const Values& v) {
    const Value images = detail::to_floating(v[0]), sums = window_reduce(images, WindowKind::add, dims);
    if (!options.count_padding)
      return sums /
             detail::broadcast_value("avg_pool", window_sizes(b, images.dtype(), images.shape(), dims), sums.shape());
    double size = 1;
    for (const WindowDim& dim : dims) size *= static_cast<double>(dim.window);
    return sums / size;
  });
}

}  // namespace lockstep
