#include "array/promote.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/shape_ops.h"

namespace lockstep::detail {

int64_t axis_of(const char* what, int64_t axis, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t counted = axis < 0 ? axis + rank : axis;
  if (counted >= 0 && counted < rank) return counted;
  if (rank == 0) throw_error("{}: axis {} is out of range; a scalar has no axes", what, axis);
  throw_error("{}: axis {} is out of range for {}; valid axes: {} to {}", what, axis, to_string(shape), -rank,
              rank - 1);
}

std::vector<int64_t> axes_of(const char* what, const Axes& axes, const Shape& shape) {
  if (!axes.list) return counting(0, static_cast<int64_t>(shape.size()));
  std::vector<int64_t> out;
  for (int64_t axis : *axes.list) {
    const int64_t counted = axis_of(what, axis, shape);
    if (contains(out, counted))
      throw_error("{}: axis {} of {} is given twice; give each axis once", what, counted, to_string(shape));
    out.push_back(counted);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<int64_t> other_axes(int64_t rank, const std::vector<int64_t>& axes) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < rank; ++d)
    if (!contains(axes, d)) out.push_back(d);
  return out;
}

Shape broadcast_shape(const char* what, std::span<const Shape> shapes) {
  Shape out;
  for (const Shape& shape : shapes) {
    if (shape.size() > out.size()) out.insert(out.begin(), shape.size() - out.size(), 1);
    for (size_t i = 1; i <= shape.size(); ++i) {
      int64_t& extent = out[out.size() - i];
      const int64_t other = shape[shape.size() - i];
      if (extent == 1) extent = other;
      if (other == extent || other == 1) continue;
      std::string list;
      for (const Shape& s : shapes) list += (list.empty() ? "" : &s == &shapes.back() ? " and " : ", ") + to_string(s);
      throw_error(
          "{}: shapes {} do not broadcast: dimension -{} is {} in one and {} in another; make them equal, or one of "
          "them 1",
          what, list, i, extent, other);
    }
  }
  return out;
}

Value convert(Value x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

namespace {

struct Bounds {
  int64_t least, most;
};
Bounds bounds_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
      return {0, std::numeric_limits<uint8_t>::max()};
    case DType::u16:
      return {0, std::numeric_limits<uint16_t>::max()};
    case DType::u64:
      return {0, std::numeric_limits<int64_t>::max()};
    case DType::i8:
      return {std::numeric_limits<int8_t>::min(), std::numeric_limits<int8_t>::max()};
    case DType::i16:
      return {std::numeric_limits<int16_t>::min(), std::numeric_limits<int16_t>::max()};
    case DType::i32:
      return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::u32:
      return {0, std::numeric_limits<uint32_t>::max()};
    default:
      return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  }
}

template <class T>
[[noreturn]] void throw_not_in(const char* what, T number, DType dtype) {
  const auto [least, most] = bounds_of(dtype);
  throw_error("{}: {} is out of range for {} ({} to {}); use another number or element type", what, number, name(dtype),
              least, most);
}

}  // namespace

int64_t checked_integer(const char* what, int64_t number, DType dtype) {
  const auto [least, most] = bounds_of(dtype);
  if (number < least || number > most) throw_not_in(what, number, dtype);
  return number;
}

int64_t checked_integer(const char* what, double number, DType dtype) {
  if (!(number > -0x1p63 && number < 0x1p63)) throw_not_in(what, number, dtype);
  return checked_integer(what, static_cast<int64_t>(number), dtype);
}

DType floating_of(DType dtype) { return is_inexact(dtype) ? dtype : DType::f32; }
DType number_of(DType dtype) { return dtype == DType::boolean ? DType::i32 : dtype; }
Value to_floating(Value x) { return convert(x, floating_of(x.dtype())); }
Value to_number(Value x) { return convert(x, number_of(x.dtype())); }

Value broadcast_value(const char* what, Value x, Shape shape) {
  if (x.shape() == shape) return x;
  const auto rank = static_cast<int64_t>(shape.size()), lead = rank - x.rank();
  Shape kept;
  std::vector<int64_t> dims;
  bool fits = lead >= 0;
  for (int64_t d = 0; fits && d < x.rank(); ++d) {
    const int64_t extent = x.shape()[at_axis(d)], wanted = shape[at_axis(d + lead)];
    fits = extent == wanted || extent == 1;
    if (extent != wanted) continue;
    kept.push_back(extent);
    dims.push_back(d + lead);
  }
  if (!fits)
    throw_error("{}: shape {} does not broadcast to {}; trailing dimensions must be equal or 1", what,
                to_string(x.shape()), to_string(shape));
  if (kept != x.shape()) x = reshape(x, kept);
  return kept == shape ? x : broadcast(x, shape, dims);
}

Values promote_and_broadcast(const char* what, const Values& values, DType dtype) {
  std::vector<Shape> shapes;
  for (const Value& v : values) shapes.push_back(v.shape());
  const Shape shape = broadcast_shape(what, shapes);
  Values out;
  for (const Value& v : values) out.push_back(broadcast_value(what, convert(v, dtype), shape));
  return out;
}

Value repeat_along(Value reduced, Shape shape, const std::vector<int64_t>& axes) {
  if (axes.empty()) return reduced;
  std::vector<int64_t> others = other_axes(static_cast<int64_t>(shape.size()), axes);
  return broadcast(reduced, std::move(shape), std::move(others));
}

Value keep_axes(Value reduced, Shape shape, const std::vector<int64_t>& axes) {
  if (axes.empty()) return reduced;
  for (int64_t axis : axes) shape[at_axis(axis)] = 1;
  return reshape(reduced, std::move(shape));
}

Value signed_integers(Value x) {
  if (size_of(x.dtype()) < 4) return cast(x, DType::i32);
  if (x.dtype() == DType::u64) x = minimum(x, full(x.builder(), x.type(), std::numeric_limits<int64_t>::max()));
  return is_signed(x.dtype()) ? x : cast(x, DType::i64);
}

Value wrap_indices(const char* what, Value indices, int64_t extent) {
  if (!is_integer(indices.dtype()))
    throw_error("{}: the indices are {}; indices must be integers: use astype(indices, i32)", what,
                to_string(indices.type()));
  const bool wraps = is_signed(indices.dtype());
  if (index_dtype(extent) == DType::i64) indices = convert(signed_integers(indices), DType::i64);
  if (indices.dtype() != DType::u32) indices = signed_integers(indices);
  if (!wraps) return indices;
  return select(lt(indices, zeros_like(indices)), add(indices, full(indices.builder(), indices.type(), extent)),
                indices);
}

}  // namespace lockstep::detail
