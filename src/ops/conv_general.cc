#include "ops/conv_general.h"

#include <algorithm>

#include "base/check.h"
#include "ops/conv.h"
#include "ops/dims.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

Value zero_of(Value x) { return full(x.builder(), {x.dtype(), {}}, 0); }

// The dimension once pad_windows() has been applied.
WindowDim without_padding(WindowDim dim) {
  dim.low = dim.high = 0;
  dim.base_dilation = 1;
  return dim;
}

// conv2d() of x [n, h, w, c]; it takes no negative padding.
Value conv_of_images(Value x, Value w, std::vector<WindowDim> dims, int64_t groups) {
  std::vector<WindowDim> cut(dims.size());
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d].low < 0 || dims[d].high < 0) {
      cut[d] = dims[d];
      dims[d] = without_padding(dims[d]);
    }
  return conv2d(pad_windows(x, zero_of(x), 1, cut), w,
                {.stride = {dims[0].stride, dims[1].stride},
                 .pad = {dims[0].low, dims[0].high, dims[1].low, dims[1].high},
                 .lhs_dilation = {dims[0].base_dilation, dims[1].base_dilation},
                 .rhs_dilation = {dims[0].window_dilation, dims[1].window_dilation},
                 .groups = groups});
}

// x [n, d, h, w, c], w [kd, kh, kw, ci, co].
Value conv_of_volumes(Value x, Value w, const std::vector<WindowDim>& dims, int64_t groups) {
  const WindowDim deep = without_padding(dims[0]);
  const Value padded = pad_windows(x, zero_of(x), 1, {dims[0]});
  const Shape s = padded.shape(), f = w.shape();
  const int64_t out = deep.count(s[1]), each = groups == 0 ? 0 : s[4] / groups;
  Values taps;
  for (int64_t t = 0; t < deep.window; ++t)
    taps.push_back(reshape(tap_of(padded, 1, deep, t), {s[0] * out, s[2], s[3], groups, 1, each}));
  const Value images =
      reshape(taps.size() == 1 ? taps[0] : concatenate(taps, 4), {s[0] * out, s[2], s[3], deep.window * s[4]});
  const Value filter = reshape(transpose(w, {1, 2, 0, 3, 4}), {f[1], f[2], f[0] * f[3], f[4]});
  const Value y = conv_of_images(images, filter, {dims[1], dims[2]}, groups);
  const Shape made = y.shape();
  return reshape(y, {s[0], out, made[1], made[2], made[3]});
}

}  // namespace

int64_t WindowDim::count(int64_t extent) const {
  const int64_t room = padded(extent) - span();
  return room < 0 ? 0 : room / stride + 1;
}

Value pad_windows(Value x, Value value, size_t first, const std::vector<WindowDim>& dims) {
  Dims low(x.shape().size(), 0), high = low, interior = low;
  bool any = false;
  for (size_t d = 0; d < dims.size(); ++d) {
    low[first + d] = dims[d].low;
    high[first + d] = dims[d].high;
    interior[first + d] = dims[d].base_dilation - 1;
    any = any || dims[d].low != 0 || dims[d].high != 0 || dims[d].base_dilation != 1;
  }
  return any ? pad(x, value, low, high, interior) : x;
}

Value tap_of(Value x, size_t d, const WindowDim& dim, int64_t tap) {
  const Shape shape = x.shape();
  Dims starts(shape.size(), 0), limits = shape, strides(shape.size(), 1);
  const int64_t n = dim.count(shape[d]);
  starts[d] = tap * dim.window_dilation;
  limits[d] = n == 0 ? starts[d] : starts[d] + (n - 1) * dim.stride + 1;
  strides[d] = dim.stride;
  return slice(x, starts, limits, strides);
}

Value conv_general(Value x, Value w, const std::vector<WindowDim>& dims, int64_t groups) {
  const auto with_ones = [](Value v, int64_t at, size_t ones) {
    Shape shape = v.shape();
    shape.insert(shape.begin() + at, ones, 1);
    return reshape(v, shape);
  };
  LOCKSTEP_CHECK(dims.size() <= 3, "{} spatial dimensions", dims.size());
  if (dims.size() == 3) return conv_of_volumes(x, w, dims, groups);
  std::vector<WindowDim> both(2);
  std::copy(dims.begin(), dims.end(), both.end() - static_cast<std::ptrdiff_t>(dims.size()));
  const size_t ones = 2 - dims.size();
  const Value y = conv_of_images(with_ones(x, 1, ones), with_ones(w, 0, ones), both, groups);
  if (ones == 0) return y;
  Shape shape = y.shape();
  shape.erase(shape.begin() + 1, shape.begin() + 1 + static_cast<std::ptrdiff_t>(ones));
  return reshape(y, shape);
}

Value window_patches(Value x, const std::vector<WindowDim>& dims) {
  const Shape in = x.shape();
  Values pieces{pad_windows(x, zero_of(x), 1, dims)};
  int64_t taps = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    Values more;
    for (const Value piece : pieces)
      for (int64_t t = 0; t < dims[d].window; ++t) more.push_back(tap_of(piece, d + 1, without_padding(dims[d]), t));
    pieces = std::move(more);
    taps *= dims[d].window;
  }
  Shape shape = pieces[0].shape();
  for (Value& piece : pieces) {
    Shape one = shape;
    one.push_back(1);
    piece = reshape(piece, one);
  }
  const Value all = pieces.size() == 1 ? pieces[0] : concatenate(pieces, static_cast<int64_t>(shape.size()));
  shape.back() *= taps;
  return reshape(all, shape);
}

}  // namespace lockstep
