#include "lockstep/arrange.h"

#include <algorithm>
#include <numeric>

#include "array/apply.h"
#include "array/index_plan.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/indexing.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "lockstep/vmap.h"
#include "ops/dims.h"
#include "ops/index_ops.h"

namespace lockstep {
namespace {

using detail::at_axis;
using detail::axis_of;

std::vector<Array> each(const std::vector<Array>& arrays, Array (*f)(const Operand&)) {
  std::vector<Array> out;
  for (const Array& x : arrays) out.push_back(f(x));
  return out;
}

Array at_positions(const Array& x, const std::vector<int64_t>& positions, int64_t axis) {
  return take(x, detail::index_vector(positions, x.shape(axis)), axis);
}

// The dimension along which hstack and hsplit work.
int64_t horizontal(const char* what, const Array& x) {
  if (x.rank() == 0) throw_error("{}: the array is a scalar; it needs at least one dimension", what);
  return x.rank() == 1 ? 0 : 1;
}

void check_rank(const char* what, const Array& x, int64_t least) {
  if (x.rank() < least)
    throw_error("{}: {} has {} dimensions; it needs at least {}", what, to_string(x.shape()), x.rank(), least);
}

// A position of an axis, not negative. `end`: whether the position after the last element is valid.
int64_t position_of(const char* what, int64_t index, const Array& x, int64_t axis, bool end) {
  const int64_t n = x.shape(axis), counted = index < 0 ? index + n : index;
  if (counted < 0 || counted > (end ? n : n - 1))
    throw_error("{}: index {} is out of range for dimension {} of {}; valid indices: {} to {}", what, index, axis,
                to_string(x.shape()), -n, end ? n : n - 1);
  return counted;
}

}  // namespace

Array atleast_1d(const Operand& x) { return x.rank() >= 1 ? Array(x) : reshape(x, {1}); }
Array atleast_2d(const Operand& x) { return x.rank() >= 2 ? Array(x) : reshape(x, {1, x.size()}); }
Array atleast_3d(const Operand& x) {
  if (x.rank() >= 3) return x;
  return x.rank() == 2 ? expand_dims(x, 2) : reshape(x, {1, x.size(), 1});
}

Shape broadcast_shapes(const std::vector<Shape>& shapes, SourceLine at) {
  const detail::CallerLine line(at);
  return detail::broadcast_shape("broadcast_shapes", shapes);
}

std::vector<Array> broadcast_arrays(const Operands& arrays) {
  std::vector<Shape> shapes;
  for (const Array& x : arrays) shapes.push_back(x.shape());
  const Shape shape = detail::broadcast_shape("broadcast_arrays", shapes);
  std::vector<Array> out;
  for (const Array& x : arrays) out.push_back(broadcast_to(x, shape));
  return out;
}

Array moveaxis(const Operand& x, const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  if (from.size() != to.size())
    throw_error("moveaxis: {} axes to {} positions; give as many positions as axes", from.size(), to.size());
  detail::axes_of("moveaxis", from, x.shape());
  detail::axes_of("moveaxis", to, x.shape());
  std::vector<int64_t> permutation(x.shape().size(), -1), moved;
  for (size_t i = 0; i < from.size(); ++i) {
    moved.push_back(axis_of("moveaxis", from[i], x.shape()));
    permutation[at_axis(axis_of("moveaxis", to[i], x.shape()))] = moved.back();
  }
  int64_t next = 0;
  for (int64_t& source : permutation) {
    if (source >= 0) continue;
    while (contains(moved, next)) ++next;
    source = next++;
  }
  return transpose(x, permutation);
}

Array rollaxis(const Operand& x, int64_t axis, int64_t start) {
  const int64_t from = axis_of("rollaxis", axis, x.shape());
  if (start < -x.rank() || start > x.rank())
    throw_error("rollaxis: position {} is out of range for {}; valid positions: {} to {}", start, to_string(x.shape()),
                -x.rank(), x.rank());
  const int64_t before = start < 0 ? start + x.rank() : start;
  return moveaxis(x, from, before > from ? before - 1 : before);
}

Array resize(const Operand& x, const Shape& shape) {
  const int64_t wanted = count(shape);
  if (x.size() == 0 || wanted == 0) return zeros(shape, x.dtype());
  const Array repeated = tile(ravel(x), {(wanted + x.size() - 1) / x.size()});
  return reshape(slice(repeated, {0}, {wanted}), shape);
}

Array hstack(const Operands& arrays) {
  const std::vector<Array> parts = each(arrays, atleast_1d);
  return concatenate(parts, parts.empty() || parts[0].rank() == 1 ? 0 : 1);
}
Array vstack(const Operands& arrays) { return concatenate(each(arrays, atleast_2d), 0); }
Array dstack(const Operands& arrays) { return concatenate(each(arrays, atleast_3d), 2); }
Array column_stack(const Operands& arrays) {
  return concatenate(each(arrays, [](const Operand& x) { return x.rank() < 2 ? reshape(x, {-1, 1}) : Array(x); }), 1);
}

Array block(const std::vector<std::vector<Array>>& rows, SourceLine at) {
  const detail::CallerLine line(at);
  std::vector<Array> joined;
  for (const std::vector<Array>& row : rows) joined.push_back(concatenate(each(row, atleast_1d), -1));
  if (joined.size() == 1) return joined[0];
  return concatenate(each(joined, atleast_2d), -2);
}

Array append(const Operand& x, const Operand& values) { return concatenate({ravel(x), ravel(values)}, 0); }
Array append(const Operand& x, const Operand& values, int64_t axis) { return concatenate({x, values}, axis); }

Array insert(const Operand& x, int64_t index, const Operand& values, int64_t axis) {
  const int64_t along = axis_of("insert", axis, x.shape()), at = position_of("insert", index, x, along, true);
  if (values.rank() > x.rank())
    throw_error("insert: values {} for {}; they must not have more dimensions", to_string(values.shape()),
                to_string(x.shape()));
  // As in NumPy, the first dimension of the values, padded to the rank of x, lies along the axis.
  Shape padded = values.shape(), shape = x.shape();
  padded.insert(padded.begin(), shape.size() - padded.size(), 1);
  const Array added = moveaxis(reshape(astype(values, x.dtype()), padded), 0, along);
  shape[at_axis(along)] = added.shape(along);
  const std::vector<Array> parts = split_at(x, {at}, along);
  return concatenate({parts[0], broadcast_to(added, shape), parts[1]}, along);
}

Array insert(const Operand& x, const std::vector<int64_t>& indices, const Operand& values, int64_t axis) {
  const int64_t along = axis_of("insert", axis, x.shape());
  const auto n = static_cast<int64_t>(indices.size());
  std::vector<int64_t> positions, order(indices.size());
  for (int64_t index : indices) positions.push_back(position_of("insert", index, x, along, true));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int64_t i) { return positions[at_axis(i)]; });
  Shape shape = x.shape();
  shape[at_axis(along)] = n;
  const std::vector<Array> added =
      split(broadcast_to(astype(values, x.dtype()), shape), std::max<int64_t>(n, 1), along);
  std::vector<int64_t> cuts;
  for (int64_t i : order) cuts.push_back(positions[at_axis(i)]);
  const std::vector<Array> kept = split_at(x, cuts, along);
  std::vector<Array> parts{kept[0]};
  for (size_t i = 0; i < order.size(); ++i) {
    parts.push_back(added[at_axis(order[i])]);
    parts.push_back(kept[i + 1]);
  }
  return concatenate(parts, along);
}

Array delete_(const Operand& x, int64_t index, int64_t axis) { return delete_(x, std::vector<int64_t>{index}, axis); }

Array delete_(const Operand& x, const std::vector<int64_t>& indices, int64_t axis) {
  const int64_t along = axis_of("delete_", axis, x.shape());
  std::vector<int64_t> gone, kept;
  for (int64_t index : indices) gone.push_back(position_of("delete_", index, x, along, false));
  for (int64_t i = 0; i < x.shape(along); ++i)
    if (!contains(gone, i)) kept.push_back(i);
  return at_positions(x, kept, along);
}

std::vector<Array> array_split(const Operand& x, int64_t pieces, int64_t axis) {
  const int64_t along = axis_of("array_split", axis, x.shape()), n = x.shape(along);
  if (pieces < 1) throw_error("array_split: {} parts requested; the number must be positive", pieces);
  std::vector<int64_t> positions;
  for (int64_t i = 1; i < pieces; ++i) positions.push_back(i * (n / pieces) + std::min(i, n % pieces));
  return split_at(x, positions, along);
}

std::vector<Array> array_split(const Operand& x, const std::vector<int64_t>& positions, int64_t axis) {
  return split_at(x, positions, axis);
}

std::vector<Array> hsplit(const Operand& x, int64_t pieces) { return split(x, pieces, horizontal("hsplit", x)); }
std::vector<Array> hsplit(const Operand& x, const std::vector<int64_t>& positions) {
  return split_at(x, positions, horizontal("hsplit", x));
}
std::vector<Array> vsplit(const Operand& x, int64_t pieces) {
  check_rank("vsplit", x, 2);
  return split(x, pieces, 0);
}
std::vector<Array> vsplit(const Operand& x, const std::vector<int64_t>& positions) {
  check_rank("vsplit", x, 2);
  return split_at(x, positions, 0);
}
std::vector<Array> dsplit(const Operand& x, int64_t pieces) {
  check_rank("dsplit", x, 3);
  return split(x, pieces, 2);
}
std::vector<Array> dsplit(const Operand& x, const std::vector<int64_t>& positions) {
  check_rank("dsplit", x, 3);
  return split_at(x, positions, 2);
}

Array repeat(const Operand& x, int64_t times) { return repeat(ravel(x), times, 0); }

Array repeat(const Operand& x, const std::vector<int64_t>& repeats, int64_t axis) {
  const int64_t along = axis_of("repeat", axis, x.shape());
  if (repeats.size() == 1) return repeat(x, repeats[0], along);
  if (static_cast<int64_t>(repeats.size()) != x.shape(along))
    throw_error("repeat: {} counts for dimension {} of {}; pass one for each of its {} elements", repeats.size(), along,
                to_string(x.shape()), x.shape(along));
  std::vector<int64_t> positions;
  for (size_t i = 0; i < repeats.size(); ++i) {
    if (repeats[i] < 0) throw_error("repeat: {} repeats; the number must not be negative", repeats[i]);
    positions.insert(positions.end(), at_axis(repeats[i]), static_cast<int64_t>(i));
  }
  return at_positions(x, positions, along);
}

Array repeat(const Operand& x, const Operand& repeats, int64_t axis, int64_t total_repeat_length) {
  const int64_t along = axis_of("repeat", axis, x.shape()), n = x.shape(along);
  if (is_floating(repeats.dtype()) || repeats.rank() > 1 || (repeats.rank() == 1 && repeats.shape(0) != n))
    throw_error("repeat: the counts are {} for dimension {} of {}; pass one integer for each of its {} elements",
                to_string(repeats.type()), along, to_string(x.shape()), n);
  if (total_repeat_length < 0)
    throw_error("repeat: a total length of {}; it must not be negative", total_repeat_length);
  if (total_repeat_length == 0 || n == 0) {
    Shape shape = x.shape();
    shape[at_axis(along)] = 0;
    return zeros(shape, x.dtype());
  }
  // Where the copies of each element after the first begin; positions past the end are dropped.
  const Array ends = cumsum(broadcast_to(astype(repeats, i64), {n}), 0);
  const Array marks = scatter_add(zeros({total_repeat_length}, index_dtype(n)), slice(ends, {0}, {n - 1}), 1);
  return take(x, cumsum(marks, 0), along);
}

Array fliplr(const Operand& x) {
  check_rank("fliplr", x, 2);
  return flip(x, 1);
}
Array flipud(const Operand& x) {
  check_rank("flipud", x, 1);
  return flip(x, 0);
}

Array rot90(const Operand& x, int64_t k, std::pair<int64_t, int64_t> axes) {
  const int64_t first = axis_of("rot90", axes.first, x.shape()), second = axis_of("rot90", axes.second, x.shape());
  if (first == second) throw_error("rot90: axis {} is given twice; give two different axes", first);
  switch (((k % 4) + 4) % 4) {
    case 0:
      return x;
    case 1:
      return flip(swapaxes(x, first, second), first);
    case 2:
      return flip(x, {first, second});
    default:
      return flip(swapaxes(x, first, second), second);
  }
}

Array roll(const Operand& x, const std::vector<int64_t>& shifts, const std::vector<int64_t>& axes) {
  if (shifts.size() != axes.size() && shifts.size() != 1)
    throw_error("roll: {} shifts and {} axes; pass one shift for each axis, or one for all", shifts.size(),
                axes.size());
  Array out = x;
  for (size_t i = 0; i < axes.size(); ++i) out = roll(out, shifts[shifts.size() == 1 ? 0 : i], axes[i]);
  return out;
}

std::vector<Array> meshgrid(const Operands& vectors, const MeshgridOptions& options) {
  const size_t rank = vectors.size();
  std::vector<Array> arranged;
  std::vector<Shape> shapes;
  for (size_t i = 0; i < rank; ++i) {
    if (vectors[i].rank() > 1)
      throw_error("meshgrid: array {} is {}; pass vectors or scalars", i, to_string(vectors[i].type()));
    Shape shape(rank, 1);
    shape[options.ij || i > 1 || rank < 2 ? i : 1 - i] = vectors[i].size();
    arranged.push_back(reshape(vectors[i], shape));
    shapes.push_back(shape);
  }
  if (options.sparse || rank == 0) return arranged;
  return broadcast_arrays(arranged);
}

Array apply_along_axis(const std::function<Array(const Array&)>& f, int64_t axis, const Operand& x) {
  const int64_t along = axis_of("apply_along_axis", axis, x.shape());
  const Array lines = moveaxis(x, along, -1);
  const Shape outer = without(x.shape(), {along});
  const Array results = vmap(f)(reshape(lines, {count(outer), x.shape(along)}));
  Shape shape = outer;
  shape.insert(shape.end(), results.shape().begin() + 1, results.shape().end());
  std::vector<int64_t> from, to;
  for (auto d = static_cast<int64_t>(outer.size()); d < static_cast<int64_t>(shape.size()); ++d) {
    from.push_back(d);
    to.push_back(along + d - static_cast<int64_t>(outer.size()));
  }
  return moveaxis(reshape(results, shape), from, to);
}

Array apply_over_axes(const std::function<Array(const Array&, int64_t)>& f, const Operand& x,
                      const std::vector<int64_t>& axes) {
  Array out = x;
  for (int64_t axis : axes) {
    const int64_t along = axis_of("apply_over_axes", axis, out.shape());
    const Array next = f(out, along);
    if (next.rank() != out.rank() && next.rank() != out.rank() - 1)
      throw_error("apply_over_axes: the function returned {} for {}; it must keep the rank or remove the axis",
                  to_string(next.type()), to_string(out.type()));
    out = next.rank() == out.rank() ? next : expand_dims(next, along);
  }
  return out;
}

}  // namespace lockstep
