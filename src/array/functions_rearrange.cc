#include <algorithm>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/rearrange.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply;
using detail::apply1;
using detail::at_axis;
using detail::axes_of;
using detail::axis_of;

// Applies a function of one Value.
Array view(const char* what, const Array& x, FunctionRef<Value(Value)> f) {
  return apply1(what, {x}, [&](Builder&, const Values& v) { return f(v[0]); });
}

// The same elements with another shape. REQUIRES: the number of elements is the same.
Array with_shape(const char* what, const Array& x, const Shape& shape) {
  if (std::optional<Array> out = detail::contiguous_slice(x, 0, shape)) return *out;
  return view(what, x, [&](Value v) { return reshape(v, shape); });
}

// The elements of a box, with another shape, if they are contiguous and no program is needed.
std::optional<Array> box_of(const Array& x, const Dims& from, const Dims& to, const Shape& shape) {
  IndexBox box;
  for (size_t d = 0; d < from.size(); ++d) box.push_back({from[d], to[d]});
  const int64_t first = detail::contiguous_offset(x.shape(), box);
  return first >= 0 ? detail::contiguous_slice(x, first, shape) : std::nullopt;
}

Shape reshaped(const Shape& from, const Shape& to) {
  const int64_t elements = count(from), free = std::count(to.begin(), to.end(), -1);
  if (free > 1) throw_error("reshape: {} has {} extents of -1; only one can be inferred", to_string(to), free);
  Shape out = to;
  if (free == 1) {
    int64_t& open = *std::find(out.begin(), out.end(), -1);
    open = 1;
    const int64_t rest = count(out);
    if (rest == 0 || elements % rest != 0)
      throw_error("reshape: {} has {} elements, not divisible into {}; use extents whose product divides {}",
                  to_string(from), elements, to_string(to), elements);
    open = elements / rest;
  }
  if (count(out) != elements)
    throw_error("reshape: {} has {} elements, but {} has {}; the numbers must match", to_string(from), elements,
                to_string(to), count(out));
  return out;
}

// The slice [start, limit) along an axis.
Value piece(Value x, int64_t axis, int64_t start, int64_t limit) {
  Dims starts(x.shape().size(), 0), limits = x.shape();
  starts[at_axis(axis)] = start;
  limits[at_axis(axis)] = limit;
  return slice(x, starts, limits, Dims(x.shape().size(), 1));
}

DType common_dtype_of(const std::vector<Array>& arrays, const char* what) {
  if (arrays.empty()) throw_error("{}: no arrays given; pass at least one", what);
  return detail::common_dtype(arrays);
}

std::vector<Array> pieces(const char* what, const Array& x, int64_t axis, const Dims& bounds) {
  return apply(what, std::span<const Array>(std::addressof<const Array>(x), 1), {}, [&](Builder&, const Values& v) {
    Values out;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) out.push_back(piece(v[0], axis, bounds[i], bounds[i + 1]));
    return out;
  });
}

// Converts scalars to the starts of a block of x.
Values block_starts(const char* what, Value x, std::span<const Value> starts) {
  if (static_cast<int64_t>(starts.size()) != x.rank())
    throw_error("{}: {} starts for {}; pass one for each of its {} dimensions", what, starts.size(),
                to_string(x.shape()), x.rank());
  Values out;
  for (size_t d = 0; d < starts.size(); ++d) {
    if (starts[d].rank() != 0)
      throw_error("{}: the start of dimension {} is {}; starts must be integer scalars", what, d,
                  to_string(starts[d].type()));
    Value at = detail::wrap_indices(what, starts[d], x.shape()[d]);
    const DType dtype = index_dtype(x.shape()[d]);
    if (at.dtype() != dtype) at = minimum(maximum(at, zeros_like(at)), full(at.builder(), at.type(), x.shape()[d]));
    out.push_back(detail::convert(at, dtype));
  }
  return out;
}

}  // namespace

Array reshape(const Operand& x, const Shape& shape) {
  if (!x.defined()) return view("reshape", x, [](Value v) { return v; });  // throws
  return with_shape("reshape", x, reshaped(x.shape(), shape));
}

Array ravel(const Operand& x) { return reshape(x, {-1}); }

Array flatten(const Operand& x, int64_t start) {
  if (x.rank() == 0) return reshape(x, {1});
  const int64_t from = axis_of("flatten", start, x.shape());
  Shape shape(x.shape().begin(), x.shape().begin() + from);
  shape.push_back(extent(x.shape(), from, x.rank()));
  return reshape(x, shape);
}

Array transpose(const Operand& x) {
  std::vector<int64_t> reversed = counting(0, x.rank());
  std::reverse(reversed.begin(), reversed.end());
  return transpose(x, reversed);
}

Array transpose(const Operand& x, const std::vector<int64_t>& permutation) {
  const auto named = axes_of("transpose", permutation, x.shape());
  if (static_cast<int64_t>(named.size()) != x.rank())
    throw_error("transpose: the permutation {} has {} axes, but {} has {}; list each axis once", to_string(permutation),
                permutation.size(), to_string(x.shape()), x.rank());
  std::vector<int64_t> counted;
  for (int64_t axis : permutation) counted.push_back(axis_of("transpose", axis, x.shape()));
  return view("transpose", x, [&](Value v) { return transpose(v, counted); });
}

Array swapaxes(const Operand& x, int64_t a, int64_t b) {
  std::vector<int64_t> permutation = counting(0, x.rank());
  std::swap(permutation[at_axis(axis_of("swapaxes", a, x.shape()))],
            permutation[at_axis(axis_of("swapaxes", b, x.shape()))]);
  return view("swapaxes", x, [&](Value v) { return transpose(v, permutation); });
}

Array moveaxis(const Operand& x, int64_t from, int64_t to) {
  const int64_t source = axis_of("moveaxis", from, x.shape()), target = axis_of("moveaxis", to, x.shape());
  return view("moveaxis", x, [&](Value v) { return transpose(v, move_dim(v.rank(), source, target)); });
}

Array expand_dims(const Operand& x, int64_t axis) {
  const int64_t rank = x.rank(), counted = axis < 0 ? axis + rank + 1 : axis;
  if (counted < 0 || counted > rank)
    throw_error("expand_dims: axis {} is out of range for a result with {} dimensions; valid axes: {} to {}", axis,
                rank + 1, -rank - 1, rank);
  Shape shape = x.shape();
  shape.insert(shape.begin() + counted, 1);
  return with_shape("expand_dims", x, shape);
}

Array squeeze(const Operand& x, const Axes& axes) {
  const Shape& shape = x.shape();
  std::vector<int64_t> removed;
  for (int64_t axis : axes_of("squeeze", axes, shape)) {
    if (shape[at_axis(axis)] == 1)
      removed.push_back(axis);
    else if (axes.list)
      throw_error("squeeze: dimension {} of {} has extent {}; only dimensions of extent 1 can be removed", axis,
                  to_string(shape), shape[at_axis(axis)]);
  }
  return with_shape("squeeze", x, without(shape, removed));
}

Array broadcast_to(const Operand& x, const Shape& shape) {
  return view("broadcast_to", x, [&](Value v) { return detail::broadcast_value("broadcast_to", v, shape); });
}

Array concatenate(const Operands& arrays, int64_t axis) {
  const DType dtype = common_dtype_of(arrays, "concatenate");
  const int64_t along = axis_of("concatenate", axis, arrays[0].shape());
  for (const Array& a : arrays) {
    Shape same = a.shape();
    if (a.rank() == arrays[0].rank()) same[at_axis(along)] = arrays[0].shape(along);
    if (same != arrays[0].shape())
      throw_error("concatenate: shapes {} and {} along axis {}; all other dimensions must be equal",
                  to_string(arrays[0].shape()), to_string(a.shape()), along);
  }
  return apply("concatenate", arrays, dtype, [&](Builder&, const Values& v) {
    Values operands;
    for (const Value& x : v) operands.push_back(detail::convert(x, dtype));
    return Values{concatenate(operands, along)};
  })[0];
}

Array stack(const Operands& arrays, int64_t axis) {
  const DType dtype = common_dtype_of(arrays, "stack");
  const Shape& shape = arrays[0].shape();
  for (const Array& a : arrays)
    if (a.shape() != shape)
      throw_error("stack: shapes {} and {} differ; all arrays must have the same shape", to_string(shape),
                  to_string(a.shape()));
  const int64_t rank = arrays[0].rank(), along = axis < 0 ? axis + rank + 1 : axis;
  if (along < 0 || along > rank)
    throw_error("stack: axis {} is out of range for a result with {} dimensions; valid axes: {} to {}", axis, rank + 1,
                -rank - 1, rank);
  Shape layer = shape;
  layer.insert(layer.begin() + along, 1);
  return apply("stack", arrays, dtype, [&](Builder&, const Values& v) {
    Values operands;
    for (const Value& x : v) operands.push_back(reshape(detail::convert(x, dtype), layer));
    return Values{concatenate(operands, along)};
  })[0];
}

std::vector<Array> split(const Operand& x, int64_t count, int64_t axis) {
  const int64_t along = axis_of("split", axis, x.shape()), n = x.shape(along);
  if (count < 1 || n % count != 0)
    throw_error("split: dimension {} of {} has extent {}, not divisible into {} parts; use split_at for uneven parts",
                along, to_string(x.shape()), n, count);
  Dims bounds;
  for (int64_t i = 0; i <= count; ++i) bounds.push_back(i * (n / count));
  return pieces("split", x, along, bounds);
}

std::vector<Array> split_at(const Operand& x, const std::vector<int64_t>& positions, int64_t axis) {
  const int64_t along = axis_of("split_at", axis, x.shape()), n = x.shape(along);
  Dims bounds{0};
  for (int64_t position : positions) {
    if (position < bounds.back() || position > n)
      throw_error("split_at: position {} after {} along dimension {} of {}; positions must ascend from 0 to {}",
                  position, bounds.back(), along, to_string(x.shape()), n);
    bounds.push_back(position);
  }
  bounds.push_back(n);
  return pieces("split_at", x, along, bounds);
}

std::vector<Array> unstack(const Operand& x, int64_t axis) {
  const int64_t along = axis_of("unstack", axis, x.shape());
  const Shape layer = without(x.shape(), {along});
  return apply("unstack", std::span<const Array>(std::addressof<const Array>(x), 1), {},
               [&](Builder&, const Values& v) {
                 Values out;
                 for (int64_t i = 0; i < x.shape(along); ++i)
                   out.push_back(reshape(piece(v[0], along, i, i + 1), layer));
                 return out;
               });
}

Array tile(const Operand& x, const std::vector<int64_t>& times) {
  const size_t rank = std::max(times.size(), x.shape().size());
  Shape shape = x.shape(), repeats = times;
  shape.insert(shape.begin(), rank - shape.size(), 1);
  repeats.insert(repeats.begin(), rank - repeats.size(), 1);
  Shape apart, merged;  // each dimension after its number of repeats, and the two merged
  Dims dims;
  for (size_t d = 0; d < rank; ++d) {
    if (repeats[d] < 0)
      throw_error("tile: {} repeats along dimension {}; the number must not be negative", repeats[d], d);
    dims.push_back(static_cast<int64_t>(2 * d + 1));
    apart.insert(apart.end(), {repeats[d], shape[d]});
    merged.push_back(repeats[d] * shape[d]);
  }
  return view("tile", x, [&](Value v) { return reshape(broadcast(reshape(v, shape), apart, dims), merged); });
}

Array repeat(const Operand& x, int64_t times, int64_t axis) {
  const int64_t along = axis_of("repeat", axis, x.shape());
  if (times < 0) throw_error("repeat: {} repeats; the number must not be negative", times);
  Shape apart = x.shape(), merged = x.shape();
  apart.insert(apart.begin() + along + 1, times);
  merged[at_axis(along)] *= times;
  return view("repeat", x, [&](Value v) {
    return reshape(broadcast(v, apart, detail::other_axes(v.rank() + 1, {along + 1})), merged);
  });
}

Array pad(const Operand& x, const std::vector<std::pair<int64_t, int64_t>>& widths, const Operand& value) {
  std::vector<PadConfig> config;
  for (const auto& [before, after] : widths) config.push_back({before, after});
  return pad_general(x, value, config);
}

Array pad_general(const Operand& x, const Operand& value, const std::vector<PadConfig>& config) {
  if (static_cast<int64_t>(config.size()) != x.rank())
    throw_error("pad: {} widths for {}; pass {{before, after}} for each of its {} dimensions", config.size(),
                to_string(x.shape()), x.rank());
  if (value.rank() != 0) throw_error("pad: the value is {}; it must be a scalar", to_string(value.type()));
  Dims lo, hi, between;
  for (const PadConfig& each : config) {
    lo.push_back(each.before);
    hi.push_back(each.after);
    between.push_back(each.between);
  }
  return apply1("pad", {x, value}, [&](Builder&, const Values& v) {
    return pad(v[0], detail::convert(v[1], v[0].dtype()), lo, hi, between);
  });
}

Array flip(const Operand& x, const Axes& axes) {
  return view("flip", x, [&](Value v) { return reverse(v, axes_of("flip", axes, v.shape())); });
}

Array roll(const Operand& x, int64_t shift, std::optional<int64_t> axis) {
  if (!axis) return reshape(roll(ravel(x), shift, 0), x.shape());
  const int64_t along = axis_of("roll", *axis, x.shape());
  return view("roll", x, [&](Value v) {
    const int64_t n = v.shape()[at_axis(along)];
    const int64_t at = n == 0 ? 0 : ((-shift % n) + n) % n;  // index of the result's first element
    return at == 0 ? v : concatenate({piece(v, along, at, n), piece(v, along, 0, at)}, along);
  });
}

namespace {

// x where column - row <= k (or >= k, if `upper`), else 0.
Array triangle(const char* what, const Array& x, int64_t k, bool upper) {
  if (x.rank() < 2)
    throw_error("{}: {} has fewer than two dimensions; reshape it to a matrix", what, to_string(x.shape()));
  return view(what, x, [&](Value v) {
    const Type index{i64, v.shape()};
    const Value row = iota(v.builder(), index, v.rank() - 2), column = iota(v.builder(), index, v.rank() - 1);
    const Value diagonal = full(v.builder(), index, k);
    return select(upper ? ge(column - row, diagonal) : le(column - row, diagonal), v, zeros_like(v));
  });
}

}  // namespace

Array tril(const Operand& x, int64_t k) { return triangle("tril", x, k, false); }
Array triu(const Operand& x, int64_t k) { return triangle("triu", x, k, true); }

Array slice(const Operand& x, const std::vector<int64_t>& starts, const std::vector<int64_t>& limits,
            const std::vector<int64_t>& strides) {
  const size_t rank = x.shape().size();
  if (starts.size() > rank || limits.size() > rank || strides.size() > rank)
    throw_error("slice: {} starts, {} limits and {} strides for {}; pass at most one for each of its {} dimensions",
                starts.size(), limits.size(), strides.size(), to_string(x.shape()), rank);
  Dims from(rank, 0), to = x.shape(), by(rank, 1);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t n = x.shape()[d];
    auto counted = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
    if (d < starts.size()) from[d] = counted(starts[d]);
    if (d < limits.size()) to[d] = counted(limits[d]);
    to[d] = std::max(to[d], from[d]);
    if (d < strides.size()) by[d] = strides[d];
    if (by[d] < 1)
      throw_error("slice: the stride of dimension {} is {}; strides must be positive: use flip to reverse", d, by[d]);
  }
  if (std::all_of(by.begin(), by.end(), [](int64_t stride) { return stride == 1; })) {
    Shape shape;
    for (size_t d = 0; d < rank; ++d) shape.push_back(to[d] - from[d]);
    if (std::optional<Array> out = box_of(x, from, to, shape)) return *out;
  }
  return view("slice", x, [&](Value v) { return slice(v, from, to, by); });
}

Array at(const Operand& x, int64_t index, int64_t axis) {
  const int64_t along = axis_of("at", axis, x.shape()), n = x.shape(along), i = index < 0 ? index + n : index;
  if (i < 0 || i >= n)
    throw_error("at: index {} is out of range for dimension {} of {}; valid indices: {} to {}", index, along,
                to_string(x.shape()), -n, n - 1);
  Dims from(x.shape().size(), 0), to = x.shape();
  from[at_axis(along)] = i;
  to[at_axis(along)] = i + 1;
  if (std::optional<Array> out = box_of(x, from, to, without(x.shape(), {along}))) return *out;
  return view("at", x, [&](Value v) { return reshape(piece(v, along, i, i + 1), without(v.shape(), {along})); });
}

Array at(const Operand& x, const Operand& index, int64_t axis) {
  const int64_t along = axis_of("at", axis, x.shape());
  if (index.rank() != 0)
    throw_error("at: the index is {}; it must be a scalar: use take for several", to_string(index.type()));
  return apply1("at", {x, index}, [&](Builder&, const Values& v) {
    return gather(v[0], detail::wrap_indices("at", v[1], v[0].shape()[at_axis(along)]), along);
  });
}

Array dynamic_slice(const Operand& x, const Operands& starts, const std::vector<int64_t>& sizes) {
  std::vector<Array> args{x};
  args.insert(args.end(), starts.begin(), starts.end());
  return apply("dynamic_slice", args, {}, [&](Builder&, const Values& v) {
    return Values{dynamic_slice(v[0], block_starts("dynamic_slice", v[0], std::span(v).subspan(1)), sizes)};
  })[0];
}

Array dynamic_update_slice(const Operand& x, const Operand& update, const Operands& starts) {
  std::vector<Array> args{x, update};
  args.insert(args.end(), starts.begin(), starts.end());
  return apply("dynamic_update_slice", args, {}, [&](Builder&, const Values& v) {
    const Values from = block_starts("dynamic_update_slice", v[0], std::span(v).subspan(2));
    return Values{update_slice(v[0], detail::convert(v[1], v[0].dtype()), from)};
  })[0];
}

}  // namespace lockstep
