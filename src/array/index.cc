// x(...) and x.at(...): a plan of the indices (index_plan.h), written as slices, gathers and scatters of Values.
#include <algorithm>
#include <limits>
#include <utility>

#include "array/apply.h"
#include "array/index_plan.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/index.h"
#include "lockstep/math.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::at_axis;
using detail::IndexPlan;

constexpr const char* kWhat = "index";

bool is_identity(const Dims& permutation) { return std::is_sorted(permutation.begin(), permutation.end()); }
Value in_order(Value x, const Dims& order) { return is_identity(order) ? x : transpose(x, order); }
Value in_shape(Value x, const Shape& shape) { return x.shape() == shape ? x : reshape(x, shape); }

Value index_constant(Value like, int64_t value) {
  return broadcast(full(like.builder(), {like.dtype(), {}}, value), like.shape(), {});
}
Value clamped_to(Value x, int64_t low, int64_t high) {
  if (is_signed(x.dtype())) x = maximum(x, index_constant(x, low));
  return minimum(x, index_constant(x, high));
}

// ---- Ranges and integers: a box of x

// The elements that ranges and integers select; dimensions of integers have extent 1.
Value index_box(Value x, const IndexPlan& plan) {
  Dims starts, limits, strides, reversed;
  for (size_t d = 0; d < plan.sizes.size(); ++d) {
    const int64_t size = plan.sizes[d], step = plan.steps[d], first = plan.starts[d];
    const int64_t last = first + std::max<int64_t>(size - 1, 0) * step;
    strides.push_back(std::abs(step));
    starts.push_back(std::min(first, last));
    limits.push_back(size == 0 ? starts.back() : std::max(first, last) + 1);
    if (step < 0 && size > 1) reversed.push_back(static_cast<int64_t>(d));
  }
  if (starts != Dims(starts.size(), 0) || limits != x.shape() || strides != Dims(strides.size(), 1))
    x = slice(x, starts, limits, strides);
  return reversed.empty() ? x : reverse(x, reversed);
}

// x with the elements of index_box() replaced.
Value with_box(Value x, Value block, const IndexPlan& plan) {
  if (count(block.shape()) == 0) return x;
  Builder& b = x.builder();
  Dims reversed, from, to, lo, hi, interior;  // the box is a part of [from, to)
  bool dense = true;
  for (size_t d = 0; d < plan.sizes.size(); ++d) {
    const int64_t size = plan.sizes[d], step = plan.steps[d], stride = size == 1 ? 1 : std::abs(step);
    if (step < 0 && size > 1) reversed.push_back(static_cast<int64_t>(d));
    const int64_t first = std::min(plan.starts[d], plan.starts[d] + (size - 1) * step);
    const int64_t end = first + (size - 1) * stride + 1, n = x.shape()[d];
    // If it spans most of the dimension, all of it, which may stay divided over devices.
    const bool all = stride > 1 && 2 * (end - first) > n;
    from.push_back(all ? 0 : first);
    to.push_back(all ? n : end);
    lo.push_back(first - from.back());
    hi.push_back(to.back() - end);
    interior.push_back(stride - 1);
    dense &= stride == 1;
  }
  if (!reversed.empty()) block = reverse(block, reversed);
  if (!dense) {
    const Value part = to == x.shape() && from == Dims(from.size(), 0) ? x : slice(x, from, to, Dims(from.size(), 1));
    const Value inside = pad(full(b, {boolean, block.shape()}, 1), full(b, {boolean, {}}, 0), lo, hi, interior);
    block = select(inside, pad(block, full(b, {x.dtype(), {}}, 0), lo, hi, interior), part);
  }
  if (block.shape() == x.shape()) return block;
  Values starts;
  for (size_t d = 0; d < from.size(); ++d) starts.push_back(index_scalar(b, from[d], x.shape()[d]));
  return update_slice(x, block, starts);
}

// The shape of the box without the dimensions of integers.
Shape box_shape(const IndexPlan& plan) {
  Shape out;
  for (size_t d = 0; d < plan.sizes.size(); ++d)
    if (!plan.dropped[d]) out.push_back(plan.sizes[d]);
  return out;
}

// ---- Arrays: points of the box

// Indices along an axis in the type of its positions. -1 and n are outside.
Value point_index(Value index, int64_t n) {
  index = detail::wrap_indices(kWhat, index, n);
  return index.dtype() == index_dtype(n) ? index : cast(clamped_to(index, -1, n), index_dtype(n));
}

Value is_in_extent(Value index, int64_t n) {
  return bit_and(ge(index, index_constant(index, 0)), lt(index, index_constant(index, n)));
}

// The dimensions of the box as [kept..., points..., kept...], and the points merged into one dimension.
struct PointLayout {
  Dims order;      // of the dimensions of the box
  Dims extents;    // of the points
  Shape arranged;  // the box in that order
  Shape merged;    // with the points as one dimension
  int64_t axis;    // of the points
  int64_t dims;    // of the arrays
  bool first;      // whether the dimensions of the arrays come first in the result

  PointLayout(const Shape& shape, const IndexPlan& plan)
      : dims(static_cast<int64_t>(plan.points_shape.size())), first(plan.points_first) {
    Dims points, before, after;
    int64_t at = 0;
    for (size_t d = 0; d < plan.sizes.size(); ++d) {
      if (plan.dropped[d]) continue;
      Dims& list = contains(plan.point_dims, static_cast<int64_t>(d)) ? points : points.empty() ? before : after;
      list.push_back(at++);
    }
    order = before;
    order.insert(order.end(), points.begin(), points.end());
    order.insert(order.end(), after.begin(), after.end());
    axis = static_cast<int64_t>(before.size());
    for (int64_t d : points) extents.push_back(shape[at_axis(d)]);
    for (int64_t d : order) arranged.push_back(shape[at_axis(d)]);
    merged.assign(arranged.begin(), arranged.begin() + axis);
    merged.push_back(count(extents));
    merged.insert(merged.end(), arranged.begin() + axis + static_cast<int64_t>(points.size()), arranged.end());
  }

  // The order of [kept..., arrays..., kept...] that the result has.
  Dims result_order() const {
    const int64_t rank = static_cast<int64_t>(merged.size()) - 1 + dims;
    if (!first) return counting(0, rank);
    Dims out = counting(axis, axis + dims);
    for (int64_t d = 0; d < rank; ++d)
      if (d < axis || d >= axis + dims) out.push_back(d);
    return out;
  }
};

// Positions along the merged dimension of points.
struct Positions {
  Value at;
  Value inside;  // whether all indices are in range

  Positions(const Values& indices, const PointLayout& layout, const Shape& shape) {
    const DType dtype = index_dtype(count(layout.extents));
    int64_t stride = 1;
    for (size_t k = indices.size(); k-- > 0;) {
      const int64_t n = layout.extents[k];
      const Value index = detail::broadcast_value(kWhat, point_index(indices[k], n), shape);
      const Value fits = is_in_extent(index, n);
      Value part = clamped_to(index, 0, std::max<int64_t>(n - 1, 0));
      part = detail::convert(part, dtype);
      if (stride != 1) part = part * index_constant(part, stride);
      at = at ? at + part : part;
      inside = inside ? bit_and(inside, fits) : fits;
      stride *= std::max<int64_t>(n, 1);
    }
  }
  Value or_outside() const { return select(inside, at, index_constant(at, -1)); }
};

// Starts of the block of one point, clamped, and whether it is in range.
struct PointStarts {
  Values starts;
  Value inside;
  Shape sizes;

  PointStarts(Value block, const Values& indices, const IndexPlan& plan) : sizes(block.shape()) {
    Builder& b = block.builder();
    starts.assign(sizes.size(), full(b, {i32, {}}, 0));
    size_t at = 0, k = 0;
    for (size_t d = 0; d < plan.sizes.size(); ++d) {
      if (plan.dropped[d]) continue;
      if (contains(plan.point_dims, static_cast<int64_t>(d))) {
        const Value index = point_index(indices[k++], sizes[at]);
        const Value fits = is_in_extent(index, sizes[at]);
        inside = inside ? bit_and(inside, fits) : fits;
        starts[at] = clamped_to(index, 0, std::max<int64_t>(sizes[at] - 1, 0));
        sizes[at] = 1;
      }
      ++at;
    }
  }
};

Value fill_outside(Value x, Value inside, int64_t axis, Value fill) {
  Dims dims;
  for (int64_t d = 0; d < inside.rank(); ++d) dims.push_back(axis + d);
  return select(broadcast(inside, x.shape(), dims), x, broadcast(fill, x.shape(), {}));
}

void check_nonempty(const PointLayout& layout, const IndexPlan& plan) {
  if (count(layout.extents) == 0 && count(plan.points_shape) != 0)
    throw_error("index: elements are selected from an empty dimension; extents of the indexed dimensions: {}",
                to_string(layout.extents));
}

// The points of the box, in the shape plan.plain. Elements out of range become `fill`, if given.
Value take_points(Value block, const Values& indices, const IndexPlan& plan, Value fill) {
  const PointLayout layout(block.shape(), plan);
  if (fill && count(layout.extents) == 0) return broadcast(fill, plan.plain, {});
  check_nonempty(layout, plan);
  if (plan.has_scalar_points()) {
    const PointStarts point(block, indices, plan);
    const Value taken = in_shape(dynamic_slice(block, point.starts, point.sizes), plan.plain);
    return fill ? fill_outside(taken, point.inside, 0, fill) : taken;
  }
  const Positions positions(indices, layout, plan.points_shape);
  const Value merged = in_shape(in_order(block, layout.order), layout.merged);
  Value taken = gather(merged, positions.at, layout.axis);
  if (fill) taken = fill_outside(taken, positions.inside, layout.axis, fill);
  return in_order(taken, layout.result_order());
}

// ---- Updates

enum class UpdateHow : uint8_t { set, add, subtract, multiply, min, max };

const char* row_attribute(UpdateHow how) {
  return how == UpdateHow::set        ? "set"
         : how == UpdateHow::multiply ? "multiply"
         : how == UpdateHow::min      ? "min"
                                      : "max";
}

// Of bools, a sum is "or" and a product "and".
UpdateHow for_dtype(UpdateHow how, DType dtype) {
  if (dtype != boolean) return how;
  if (how == UpdateHow::subtract) throw_error("index: bools cannot be subtracted; use logical_xor, or astype(x, i32)");
  return how == UpdateHow::add ? UpdateHow::max : how == UpdateHow::multiply ? UpdateHow::min : how;
}

Value combined_elements(UpdateHow how, Value x, Value values) {
  switch (how) {
    case UpdateHow::set:
      return values;
    case UpdateHow::add:
      return x + values;
    case UpdateHow::subtract:
      return x - values;
    case UpdateHow::multiply:
      return x * values;
    case UpdateHow::min:
      return minimum(x, values);
    case UpdateHow::max:
      break;
  }
  return maximum(x, values);
}

// The box with values [plan.plain] combined with its points.
Value update_points(Value block, const Values& indices, const IndexPlan& plan, UpdateHow how, Value values,
                    const UpdateOptions& options) {
  const PointLayout layout(block.shape(), plan);
  if (count(block.shape()) == 0 || count(plan.plain) == 0) return block;
  const bool clips = options.mode == IndexMode::clip;
  if (plan.has_scalar_points()) {
    const PointStarts point(block, indices, plan);
    const Value old = dynamic_slice(block, point.starts, point.sizes);
    Value update = combined_elements(how, old, in_shape(values, point.sizes));
    if (!clips) update = select(broadcast(point.inside, point.sizes, {}), update, old);
    return update_slice(block, update, point.starts);
  }
  const Positions positions(indices, layout, plan.points_shape);
  const Value at = clips ? positions.at : positions.or_outside();
  const Value merged = in_shape(in_order(block, layout.order), layout.merged);
  const Value updates = in_order(values, inverse(layout.result_order()));
  Value out;
  if (how == UpdateHow::add || how == UpdateHow::subtract)
    out = scatter_add(merged, at, how == UpdateHow::add ? updates : -updates, layout.axis);
  else
    out = scatter(merged, at, updates, row_attribute(how), layout.axis, 0, options.unique_indices);
  return in_order(in_shape(out, layout.arranged), inverse(layout.order));
}

Value updated_elements(Value x, const Values& indices, const IndexPlan& plan, UpdateHow how, Value values,
                       const UpdateOptions& options) {
  const Shape inner = box_shape(plan);
  values = in_shape(detail::broadcast_value(kWhat, values, plan.result), plan.plain);
  Value block;
  if (plan.points.empty())
    block = how == UpdateHow::set ? values : combined_elements(how, in_shape(index_box(x, plan), inner), values);
  else
    block = update_points(in_shape(index_box(x, plan), inner), indices, plan, how, values, options);
  return with_box(x, in_shape(block, plan.sizes), plan);
}

// `values` in the element type of x.
Array values_for(const Array& x, const Array& values) {
  if (values.dtype() == x.dtype() && !detail::is_number(values)) return values;
  return detail::apply1(
      kWhat, {values}, [&](Builder&, const Values& v) { return detail::convert(v[0], x.dtype()); }, x.dtype());
}

// Throws Error unless the values of x.at(...).`name`(values) broadcast to the selected elements.
void check_update(const char* name, const Array& values, const Shape& selected) {
  const Shape& own = values.shape();
  bool fits = own.size() <= selected.size();
  for (size_t d = 1; fits && d <= own.size(); ++d)
    fits = own[own.size() - d] == 1 || own[own.size() - d] == selected[selected.size() - d];
  if (!fits)
    throw_error(
        "at().{}: the value {} does not broadcast to the elements that the index selects, {}; give one of that "
        "shape",
        name, to_string(values.type()), to_string(selected));
}

// `name`: the function that the user called.
Array update_elements(const char* name, const Array& x, const std::vector<Index>& indices, UpdateHow given,
                      const Array& values, const UpdateOptions& options) {
  const UpdateHow how = for_dtype(given, x.dtype());
  const Array own = values_for(x, values);
  if (detail::is_one_mask(indices) && own.rank() <= x.rank() - indices[0].array().rank()) {
    const Array& mask = indices[0].array();
    detail::check_mask(x, mask, 0);
    check_update(name, own, x.shape());
    return detail::apply1(kWhat, {x, mask, own}, [&](Builder&, const Values& v) {
      const Value wide = broadcast(v[1], v[0].shape(), counting(0, v[1].rank()));
      return select(wide, combined_elements(how, v[0], detail::broadcast_value(kWhat, v[2], v[0].shape())), v[0]);
    });
  }
  const IndexPlan plan = detail::plan_indices(x, indices);
  check_update(name, own, plan.result);
  std::vector<Array> args{x, own};
  args.insert(args.end(), plan.points.begin(), plan.points.end());
  return detail::apply(kWhat, args, {}, [&](Builder&, const Values& v) {
    return Values{updated_elements(v[0], Values(v.begin() + 2, v.end()), plan, how, v[1], options)};
  })[0];
}

// NaN, the lowest signed integer, the greatest unsigned one, or true.
Value default_fill(Builder& b, DType dtype) {
  const Type scalar{dtype, {}};
  if (dtype == boolean) return full(b, scalar, 1);
  if (is_floating(dtype)) return full(b, scalar, std::numeric_limits<double>::quiet_NaN());
  const int64_t bits = size_of(dtype) * 8;
  if (is_signed(dtype)) return full(b, scalar, INT64_MIN >> (64 - bits));
  return full(b, scalar, INT64_MAX >> std::max<int64_t>(63 - bits, 0));
}

// The elements of a box, if they are contiguous and no program is needed.
std::optional<Array> contiguous_box(const Array& x, const IndexPlan& plan) {
  if (!plan.points.empty() || count(plan.result) == 0) return {};
  IndexBox box;
  for (size_t d = 0; d < plan.sizes.size(); ++d) {
    if (plan.steps[d] != 1 && plan.sizes[d] != 1) return {};
    box.push_back({plan.starts[d], plan.starts[d] + plan.sizes[d]});
  }
  const int64_t first = detail::contiguous_offset(x.shape(), box);
  return first >= 0 ? detail::contiguous_slice(x, first, plan.result) : std::nullopt;
}

}  // namespace

detail::FirstIndex::FirstIndex(Index index, SourceLine at, int) : Index(std::move(index)), line_(at) {}
detail::FirstIndex::~FirstIndex() = default;

Array detail::indexed(const Array& x, std::span<const Index> indices, const GetOptions& options) {
  const IndexPlan plan = plan_indices(x, indices);
  if (std::optional<Array> out = contiguous_box(x, plan)) return *out;
  const bool fills = !plan.points.empty() && (options.mode == IndexMode::fill || options.mode == IndexMode::drop);
  std::vector<Array> args{x};
  args.insert(args.end(), plan.points.begin(), plan.points.end());
  if (fills && options.fill_value.defined()) args.push_back(values_for(x, options.fill_value));
  return apply(kWhat, args, {}, [&](Builder& b, const Values& v) {
    const Value block = in_shape(index_box(v[0], plan), box_shape(plan));
    if (plan.points.empty()) return Values{in_shape(block, plan.result)};
    const Values points(v.begin() + 1, v.begin() + 1 + static_cast<int64_t>(plan.points.size()));
    Value fill;
    if (fills) fill = options.fill_value.defined() ? v.back() : default_fill(b, x.dtype());
    return Values{in_shape(take_points(block, points, plan, fill), plan.result)};
  })[0];
}

Array IndexedArray::get(const GetOptions& options, SourceLine at) const {
  const detail::CallerLine line(at);
  return detail::indexed(x_, indices_, options);
}
Array IndexedArray::set(const Operand& values, UpdateOptions options) const {
  return update_elements("set", x_, indices_, UpdateHow::set, values, options);
}
Array IndexedArray::add(const Operand& values, UpdateOptions options) const {
  return update_elements("add", x_, indices_, UpdateHow::add, values, options);
}
Array IndexedArray::subtract(const Operand& values, UpdateOptions options) const {
  return update_elements("subtract", x_, indices_, UpdateHow::subtract, values, options);
}
Array IndexedArray::multiply(const Operand& values, UpdateOptions options) const {
  return update_elements("multiply", x_, indices_, UpdateHow::multiply, values, options);
}
Array IndexedArray::min(const Operand& values, UpdateOptions options) const {
  return update_elements("min", x_, indices_, UpdateHow::min, values, options);
}
Array IndexedArray::max(const Operand& values, UpdateOptions options) const {
  return update_elements("max", x_, indices_, UpdateHow::max, values, options);
}
Array IndexedArray::divide(const Operand& values, UpdateOptions options) const {
  return x_ / update_elements("divide", ones_like(x_), indices_, UpdateHow::multiply, values, options);
}
Array IndexedArray::power(const Operand& values, UpdateOptions options) const {
  return pow(x_, update_elements("power", ones_like(x_), indices_, UpdateHow::multiply, values, options));
}
Array IndexedArray::apply(const std::function<Array(const Array&)>& f, UpdateOptions options, SourceLine at) const {
  const detail::CallerLine line(at);
  const IndexMode mode = options.mode == IndexMode::clip ? IndexMode::clip : IndexMode::promise_in_bounds;
  return update_elements("apply", x_, indices_, UpdateHow::set, f(get({.mode = mode})), options);
}

}  // namespace lockstep
