#include "ops/window_reduce.h"

#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/dispatch.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/pool.h"

namespace lockstep {
namespace {

using WindowDims = std::vector<WindowDim>;

bool is_trivial(const WindowDim& d) { return d.window == 1 && d.stride == 1 && d.low == 0 && d.high == 0; }

Value pooled(Value x, WindowKind kind, const PoolingOptions& o) {
  return kind == WindowKind::add ? sum_pool(x, o) : max_pool(x, o);
}

// Windows along dimensions d and d + 1, or along d alone, of which the pooling rows make images.
Value pool_pair(Value x, WindowKind kind, size_t d, const WindowDim& h, const WindowDim* w) {
  Shape shape = x.shape();
  const WindowDim one;
  const WindowDim& v = w ? *w : one;
  const auto at = static_cast<int64_t>(d), next = at + (w ? 2 : 1);
  const Value images =
      reshape(x, {extent(shape, 0, at), shape[d], w ? shape[d + 1] : 1, extent(shape, next, x.rank())});
  const Value y =
      pooled(images, kind,
             {.window = {h.window, v.window}, .stride = {h.stride, v.stride}, .pad = {h.low, h.high, v.low, v.high}});
  shape[d] = y.shape()[1];
  if (w) shape[d + 1] = y.shape()[2];
  return reshape(y, shape);
}

// Windows whose elements are r apart, without padding: windows of adjacent elements in each of r interleaved arrays.
Value pool_dilated(Value x, WindowKind kind, size_t d, const WindowDim& dim) {
  Shape shape = x.shape();
  const int64_t r = dim.window_dilation, rows = (shape[d] + r - 1) / r, windows = dim.count(shape[d]);
  WindowDim fill;
  fill.high = rows * r - shape[d];
  const auto at = static_cast<int64_t>(d);
  const Value full_rows = pad_windows(x, window_identity(x.builder(), x.dtype(), kind), d, {fill});
  const Value y = pooled(reshape(full_rows, {extent(shape, 0, at), rows, 1, r * extent(shape, at + 1, x.rank())}), kind,
                         {.window = {dim.window, 1}});
  shape[d] = y.shape()[1] * r;
  Dims starts(shape.size(), 0), limits = shape, strides(shape.size(), 1);
  limits[d] = (windows - 1) * dim.stride + 1;
  strides[d] = dim.stride;
  return slice(reshape(y, shape), starts, limits, strides);
}

Value pool_all(Value x, WindowKind kind, const WindowDims& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (is_trivial(dims[d])) continue;
    if (dims[d].window_dilation > 1)
      x = pool_dilated(x, kind, d, dims[d]);
    else if (d > 0 && !is_trivial(dims[d - 1]) && dims[d - 1].window_dilation == 1) {
      x = pool_pair(x, kind, d - 1, dims[d - 1], &dims[d]);
      --d;
    } else if (dims[d].window == 1 && dims[d].low == 0 && dims[d].high == 0) {
      x = tap_of(x, d, dims[d], 0);
    } else {
      x = pool_pair(x, kind, d, dims[d], nullptr);
    }
  }
  return x;
}

// The product of the elements of each window; zeros are no special case of its gradient.
Value products(Value x, const WindowDims& dims) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (is_trivial(dims[d])) continue;
    Value y = tap_of(x, d, dims[d], 0);
    for (int64_t t = 1; t < dims[d].window; ++t) y = mul(y, tap_of(x, d, dims[d], t));
    x = y;
  }
  return x;
}

// Whether padding is added as elements, since the pooling rows do not support it or have another value for it.
bool needs_elements(const WindowDim& d, int64_t extent) {
  return d.base_dilation > 1 || d.window_dilation > 1 || d.low < 0 || d.high < 0 || d.low >= d.window ||
         d.high >= d.window || extent == 0;
}

// Adds padding as elements where that is needed, and removes it from `dims`.
Value with_elements(Value x, WindowKind kind, WindowDims& dims, Value padding) {
  WindowDims added(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!padding && kind != WindowKind::mul && !needs_elements(dims[d], x.shape()[d])) continue;
    added[d] = dims[d];
    dims[d].low = dims[d].high = 0;
    dims[d].base_dilation = 1;
  }
  return pad_windows(x, padding ? padding : window_identity(x.builder(), x.dtype(), kind), 0, added);
}

// Exchanges the largest and the smallest element, exactly.
Value mirrored(Value x) { return is_floating(x.dtype()) ? neg(x) : bit_not(x); }

}  // namespace

Value window_identity(Builder& b, DType dtype, WindowKind kind) {
  const Type type{dtype, {}};
  if (kind == WindowKind::add || kind == WindowKind::mul) return full(b, type, kind == WindowKind::add ? 0 : 1);
  const double sign = kind == WindowKind::max ? -1 : 1;
  if (is_floating(dtype)) return full(b, type, sign * std::numeric_limits<double>::infinity());
  int64_t value = 0;
  with_dtype(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      value = static_cast<int64_t>(kind == WindowKind::max ? std::numeric_limits<T>::lowest()
                                                           : std::numeric_limits<T>::max());
  });
  return full(b, type, value);
}

Value window_reduce(Value x, WindowKind kind, const WindowDims& geometry, Value padding) {
  WindowDims dims = geometry;
  LOCKSTEP_CHECK(dims.size() == x.shape().size(), "{} windows for {}", dims.size(), to_string(x.type()));
  Type out = x.type();
  int stages = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    out.shape[d] = dims[d].count(out.shape[d]);
    if (!is_trivial(dims[d])) ++stages;
  }
  if (count(out.shape) == 0) return full(x.builder(), out, 0);
  if (x.dtype() == DType::boolean) {
    const Value zero = full(x.builder(), {DType::i32, out.shape}, 0);
    return ne(window_reduce(cast(x, DType::i32), kind, dims, padding ? cast(padding, DType::i32) : Value()), zero);
  }
  const DType dtype = x.dtype();
  // Rounded once, not after each dimension.
  const bool widens = kind == WindowKind::add && stages > 1 && (dtype == DType::bf16 || dtype == DType::f16);
  x = with_elements(x, kind, dims, padding);
  if (kind == WindowKind::mul) return products(x, dims);
  if (kind == WindowKind::min) return mirrored(pool_all(mirrored(x), WindowKind::max, dims));
  if (!widens) return pool_all(x, kind, dims);
  return cast(pool_all(cast(x, DType::f32), kind, dims), dtype);
}

}  // namespace lockstep
