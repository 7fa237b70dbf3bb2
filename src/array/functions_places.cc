// Functions whose results are indices, and updates at indices along one axis.
#include <algorithm>
#include <cmath>

#include "array/apply.h"
#include "array/index_plan.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/search.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;
using detail::at_axis;
using detail::axis_of;

// ---- Segments

int64_t segments_of(const char* what, const Array& ids, std::optional<int64_t> given) {
  if (given && *given < 0) throw_error("{}: {} segments; the number must not be negative", what, *given);
  if (given) return *given;
  if (ids.is_traced())
    throw_error("{}: the ids {} are traced, so the number of segments is not known; pass num_segments", what,
                to_string(ids.type()));
  return ids.size() == 0 ? 0 : std::max<int64_t>(max(astype(ids, i64)).item<int64_t>() + 1, 0);
}

enum class SegmentHow : uint8_t { sum, prod, max, min };

// The element that changes no other one.
Value neutral_element(Builder& b, const Type& type, SegmentHow how) {
  const Type& t = type;
  if (how == SegmentHow::sum) return full(b, t, 0);
  if (how == SegmentHow::prod) return full(b, t, 1);
  const bool lowest = how == SegmentHow::max;
  if (t.dtype == boolean) return full(b, t, lowest ? 0 : 1);
  if (is_floating(t.dtype)) return full(b, t, lowest ? -INFINITY : INFINITY);
  const int64_t bits = size_of(t.dtype) * 8;
  if (is_signed(t.dtype)) return full(b, t, (lowest ? INT64_MIN : INT64_MAX) >> (64 - bits));
  return full(b, t, lowest ? 0 : INT64_MAX >> std::max<int64_t>(63 - bits, 0));
}

Array combine_segments(const char* what, SegmentHow how, const Array& data, const Array& ids,
                       std::optional<int64_t> num) {
  if (data.rank() == 0 || ids.rank() != 1 || ids.size() != data.shape(0))
    throw_error("{}: ids {} for data {}; give one id for each slice along the first dimension", what,
                to_string(ids.shape()), to_string(data.shape()));
  const int64_t n = segments_of(what, ids, num);
  return apply1(what, {data, ids}, [&](Builder& b, const Values& v) {
    const bool counts = how == SegmentHow::sum || how == SegmentHow::prod;
    const Value values = counts ? detail::to_number(v[0]) : v[0];
    const Value places = v[1].dtype() == u8 ? cast(v[1], i32) : v[1];
    if (!is_integer(places.dtype()))
      throw_error("{}: the ids are {}; ids must be integers: use astype(ids, i32)", what, to_string(v[1].type()));
    Shape shape = values.shape();
    shape[0] = n;
    const Value none = neutral_element(b, {values.dtype(), shape}, how);
    if (how == SegmentHow::sum) return scatter_add(none, places, values, 0);
    const char* const row = how == SegmentHow::prod ? "multiply" : how == SegmentHow::max ? "max" : "min";
    return scatter(none, places, values, row, 0);
  });
}

// ---- Indices of shapes

// The first n integers as a column or a row.
Array numbers_down(int64_t n) { return reshape(arange(n), {n, 1}); }
Array numbers_across(int64_t n) { return reshape(arange(n), {1, n}); }

std::pair<Array, Array> places_in_table(const Array& mask, std::optional<int64_t> size = {}) {
  const std::vector<Array> places = nonzero(mask, {.size = size});
  return {places[0], places[1]};
}

std::pair<Array, Array> triangle(const char* what, int64_t n, int64_t k, std::optional<int64_t> m, bool lower) {
  const int64_t columns = m.value_or(n);
  if (n < 0 || columns < 0) throw_error("{}: an array [{}, {}]; extents must not be negative", what, n, columns);
  // Counted here, because masks in traced functions have unknown values.
  int64_t size = 0;
  for (int64_t row = 0; row < n; ++row) {
    const int64_t up_to_diagonal = std::clamp<int64_t>(row + k + (lower ? 1 : 0), 0, columns);
    size += lower ? up_to_diagonal : columns - up_to_diagonal;
  }
  return places_in_table(
      lower ? numbers_down(n) + k >= numbers_across(columns) : numbers_down(n) + k <= numbers_across(columns), size);
}

// Integers in a type that counts the positions of an extent.
Array positions_in(const char* what, const Array& index, int64_t extent) {
  return apply1(what, {index}, [&](Builder&, const Values& v) {
    const Value i = detail::signed_integers(v[0]);
    return i.dtype() == i64 ? i : detail::convert(i, index_dtype(extent));
  });
}

// Indices along an extent, as the mode says.
Array ranged(const char* what, const Array& index, int64_t extent, RangeMode mode) {
  if (!is_integer(index.dtype()))
    throw_error("{}: the indices are {}; indices must be integers: use astype(indices, i32)", what,
                to_string(index.type()));
  const Array i = positions_in(what, index, extent);
  if (mode == RangeMode::wrap) return extent == 0 ? i : i - floor_divide(i, extent) * Array(extent);
  if (mode == RangeMode::clip) return clip(i, 0, std::max<int64_t>(extent - 1, 0));
  if (index.is_traced())
    throw_error("{}: the indices {} are traced, so RangeMode::raise cannot check them; use wrap or clip", what,
                to_string(index.type()));
  if (i.size() > 0 && (any(i < 0) | any(i >= Array(extent))).item<bool>())
    throw_error("{}: an index is out of range for extent {}; valid: 0 to {}", what, extent, extent - 1);
  return i;
}

}  // namespace

Array put_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis,
                     UpdateOptions options) {
  if (indices.rank() != x.rank())
    throw_error("put_along_axis: indices {} for x {}; both must have the same number of dimensions",
                to_string(indices.shape()), to_string(x.shape()));
  const int64_t along = axis_of("put_along_axis", axis, x.shape());
  Shape shape = x.shape();
  shape[at_axis(along)] = indices.shape(along);
  const Array places = broadcast_to(indices, shape);
  std::vector<Index> all;
  for (int64_t d = 0; d < x.rank(); ++d) {
    Shape line(x.shape().size(), 1);
    line[at_axis(d)] = shape[at_axis(d)];
    all.emplace_back(d == along ? places : reshape(arange(shape[at_axis(d)]), line));
  }
  return IndexedArray(x, all).set(values, options);
}

Array segment_sum(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments, bool) {
  return combine_segments("segment_sum", SegmentHow::sum, data, segment_ids, num_segments);
}
Array segment_prod(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments, bool) {
  return combine_segments("segment_prod", SegmentHow::prod, data, segment_ids, num_segments);
}
Array segment_max(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments, bool) {
  return combine_segments("segment_max", SegmentHow::max, data, segment_ids, num_segments);
}
Array segment_min(const Operand& data, const Operand& segment_ids, std::optional<int64_t> num_segments, bool) {
  return combine_segments("segment_min", SegmentHow::min, data, segment_ids, num_segments);
}

Array choose(const Operand& a, const Operands& choices, RangeMode mode) {
  if (choices.empty()) throw_error("choose: no choices; give at least one array");
  std::vector<Shape> shapes{a.shape()};
  for (const Array& each : choices) shapes.push_back(each.shape());
  const Shape shape = detail::broadcast_shape("choose", shapes);
  const Array index = ranged("choose", a, static_cast<int64_t>(choices.size()), mode);
  std::vector<Array> wide;
  for (const Array& each : choices) wide.push_back(broadcast_to(each, shape));
  return squeeze(take_along_axis(stack(wide), expand_dims(broadcast_to(index, shape), 0), 0), 0);
}

Array ravel_multi_index(const Operands& multi_index, const Shape& dims, RangeMode mode) {
  if (multi_index.size() != dims.size() || dims.empty())
    throw_error("ravel_multi_index: {} index arrays for shape {}; give one for each dimension", multi_index.size(),
                to_string(dims));
  Array out;
  const Dims strides = dense_strides(dims);
  const int64_t total = count(dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    const Array index =
        positions_in("ravel_multi_index", ranged("ravel_multi_index", multi_index[d], dims[d], mode), total);
    const Array part = index * Array(strides[d]);
    out = out.defined() ? out + part : part;
  }
  return out;
}

std::vector<Array> unravel_index(const Operand& indices, const Shape& shape) {
  if (!is_integer(indices.dtype()))
    throw_error("unravel_index: the indices are {}; indices must be integers: use astype(indices, i32)",
                to_string(indices.type()));
  const int64_t total = count(shape);
  const Array i = positions_in("unravel_index", indices, total);
  const Array counted = clip(where(i < 0, i + Array(total), i), 0, std::max<int64_t>(total - 1, 0));
  const Dims strides = dense_strides(shape);
  std::vector<Array> out;
  for (size_t d = 0; d < shape.size(); ++d)
    out.push_back(floor_divide(counted, Array(strides[d])) % Array(std::max<int64_t>(shape[d], 1)));
  return out;
}

std::pair<Array, Array> tril_indices(int64_t n, int64_t k, std::optional<int64_t> m) {
  return triangle("tril_indices", n, k, m, true);
}
std::pair<Array, Array> triu_indices(int64_t n, int64_t k, std::optional<int64_t> m) {
  return triangle("triu_indices", n, k, m, false);
}

std::vector<Array> diag_indices(int64_t n, int64_t ndim, SourceLine at) {
  const detail::CallerLine line(at);
  if (n < 0 || ndim < 1)
    throw_error("diag_indices: extent {} and {} dimensions; give an extent of at least 0 and at least 1 dimension", n,
                ndim);
  return std::vector<Array>(at_axis(ndim), arange(n));
}

std::vector<Array> ix_(const Operands& arrays) {
  std::vector<Array> out;
  for (size_t d = 0; d < arrays.size(); ++d) {
    if (arrays[d].rank() != 1)
      throw_error("ix_: array {} is {}; all arrays must have one dimension", d, to_string(arrays[d].type()));
    const Array each = arrays[d].dtype() == boolean ? flatnonzero(arrays[d]) : arrays[d];
    Shape shape(arrays.size(), 1);
    shape[d] = each.size();
    out.push_back(reshape(each, shape));
  }
  return out;
}

}  // namespace lockstep
