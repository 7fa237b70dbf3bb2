#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/indexing.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;
using detail::at_axis;
using detail::axis_of;

// The shape of take(): the dimensions of `indices` replace the axis.
Shape take_shape(const Shape& x, const Shape& indices, int64_t axis) {
  Shape out(x.begin(), x.begin() + axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), x.begin() + axis + 1, x.end());
  return out;
}

// Sorted values and their indices.
Values sort_with_indices(Value x, int64_t axis, bool descending) {
  return sort({detail::to_number(x), index_iota(x.builder(), x.shape(), axis)}, axis, descending);
}

}  // namespace

Array take(const Operand& x, const Operand& indices, int64_t axis) {
  const int64_t along = axis_of("take", axis, x.shape());
  if (x.shape(along) == 0 && indices.size() > 0)
    throw_error("take: dimension {} of {} is empty; take needs at least one element along the axis", along,
                to_string(x.shape()));
  return apply1("take", {x, indices}, [&](Builder&, const Values& v) {
    return gather(v[0], detail::wrap_indices("take", v[1], v[0].shape()[at_axis(along)]), along);
  });
}

Array take_along_axis(const Operand& x, const Operand& indices, int64_t axis) {
  if (indices.rank() != x.rank())
    throw_error("take_along_axis: indices {} for x {}; both must have the same number of dimensions",
                to_string(indices.shape()), to_string(x.shape()));
  const int64_t along = axis_of("take_along_axis", axis, x.shape()), last = x.rank() - 1;
  return apply1("take_along_axis", {x, indices}, [&](Builder&, const Values& v) {
    const Shape others[] = {without(v[0].shape(), {along}), without(v[1].shape(), {along})};
    const Shape batch = detail::broadcast_shape("take_along_axis", others);
    auto lined_up = [&](Value y) {
      Shape shape = batch;
      shape.push_back(y.shape()[at_axis(along)]);
      return detail::broadcast_value("take_along_axis", transpose(y, move_dim(y.rank(), along, last)), shape);
    };
    const Value places = detail::wrap_indices("take_along_axis", v[1], v[0].shape()[at_axis(along)]);
    return transpose(gather(lined_up(v[0]), lined_up(places), last, last), move_dim(last + 1, last, along));
  });
}

Array scatter_add(const Operand& x, const Operand& indices, const Operand& updates, int64_t axis) {
  const int64_t along = axis_of("scatter_add", axis, x.shape());
  return apply1("scatter_add", {x, indices, updates}, [&](Builder&, const Values& v) {
    const Value places = detail::wrap_indices("scatter_add", v[1], v[0].shape()[at_axis(along)]);
    const Shape shape = take_shape(v[0].shape(), places.shape(), along);
    const Value added = detail::broadcast_value("scatter_add", detail::convert(v[2], v[0].dtype()), shape);
    return scatter_add(v[0], places, added, along);
  });
}

Array one_hot(const Operand& labels, int64_t classes, DType dtype) {
  if (!is_integer(labels.dtype()))
    throw_error("one_hot: the labels are {}; labels must be integers: use astype(labels, i32)",
                to_string(labels.type()));
  if (classes < 0) throw_error("one_hot: {} classes; the number must not be negative", classes);
  return apply1("one_hot", {labels}, [&](Builder& b, const Values& v) {
    const Value given = detail::signed_integers(v[0]);
    const Value label = detail::convert(given, given.dtype() == i64 ? i64 : index_dtype(classes));
    Shape shape = label.shape();
    shape.push_back(classes);
    const Value wide = broadcast(label, shape, counting(0, label.rank()));
    return detail::convert(eq(wide, iota(b, wide.type(), label.rank())), dtype);
  });
}

Array sort(const Operand& x, int64_t axis, bool descending) {
  const int64_t along = axis_of("sort", axis, x.shape());
  return apply1("sort", {x}, [&](Builder&, const Values& v) {
    return detail::convert(sort({detail::to_number(v[0])}, along, descending)[0], v[0].dtype());
  });
}

Array argsort(const Operand& x, int64_t axis, bool descending) {
  const int64_t along = axis_of("argsort", axis, x.shape());
  return apply1("argsort", {x},
                [&](Builder&, const Values& v) { return sort_with_indices(v[0], along, descending)[1]; });
}

std::pair<Array, Array> top_k(const Operand& x, int64_t k) {
  const int64_t last = axis_of("top_k", -1, x.shape());
  if (k < 0 || k > x.shape(last))
    throw_error("top_k: k is {}, but the last dimension has {} elements in {}; valid k: 0 to {}", k, x.shape(last),
                to_string(x.shape()), x.shape(last));
  const auto out = detail::apply("top_k", std::span<const Array>(std::addressof<const Array>(x), 1), {},
                                 [&](Builder&, const Values& v) { return top_k(v[0], k); });
  return {out[0], out[1]};
}

}  // namespace lockstep
