// The gradient of `scatter`. x [B..., pre..., N, post...], indices [B..., I...], updates [B..., pre..., I..., post...].
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/index_places.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// An equation of `scatter` to differentiate.
struct Scattered {
  const Vjp& v;
  int64_t axis, batch_dims, n;
  bool unique;
  Value x, indices, updates;

  explicit Scattered(const Vjp& vjp)
      : v(vjp),
        axis(vjp.attrs.integer("axis")),
        batch_dims(vjp.attrs.integer("batch_dims")),
        n(vjp.in[0].shape()[static_cast<size_t>(axis)]),
        unique(vjp.attrs.get<bool>("unique")),
        x(vjp.in[0]),
        indices(vjp.in[1]),
        updates(vjp.in[2]) {}

  Value taken(Value from) const { return gather(from, indices, axis, batch_dims); }
  Value put(Value to, Value values, const char* how) const {
    return scatter(to, indices, values, how, axis, batch_dims, unique);
  }
  Value added(Value to, Value values) const { return scatter_add(to, indices, values, axis, batch_dims); }
  Value inside() const { return indices_inside(indices, updates, n, axis, batch_dims); }
};

// The number of each place, [B..., I...]: its position in row-major order of the indices.
Value place_numbers(const Scattered& s) {
  const Shape shape = s.indices.shape();
  const int64_t batch = extent(shape, 0, s.batch_dims), places = extent(shape, s.batch_dims, s.indices.rank());
  return reshape(index_iota(s.x.builder(), {batch, places}, 1), shape);
}

// Whether each update is the last one at its index.
Value is_last(const Scattered& s) {
  if (s.unique) return s.inside();
  Shape shape(s.x.shape().begin(), s.x.shape().begin() + s.batch_dims);
  shape.push_back(s.n);
  const Value own = place_numbers(s), none = full(s.x.builder(), {own.dtype(), shape}, -1);
  const Value last = scatter(none, s.indices, own, "set", s.batch_dims, s.batch_dims);
  return over_slices(eq(gather(last, s.indices, s.batch_dims, s.batch_dims), own), s.updates, s.axis, s.batch_dims);
}

Grads set_gradient(const Scattered& s) {
  Grads grads(3);
  const Value zeros = zeros_like(s.updates);
  if (s.v.wanted[0]) grads[0] = s.put(s.v.ct(), zeros, "set");
  if (s.v.wanted[2]) grads[2] = select(is_last(s), s.taken(s.v.ct()), zeros);
  return grads;
}

// Elements and updates that equal the result share the cotangent equally.
Grads extreme_gradient(const Scattered& s) {
  const Value y = s.v.y(), zero = zeros_like(s.updates);
  const Value kept = cast(eq(s.x, y), s.x.dtype());
  const Value hit = select(s.inside(), cast(eq(s.updates, s.taken(y)), s.x.dtype()), zero);
  const Value sharers = maximum(s.added(kept, hit), ones_like(s.x));
  const Value part = s.v.ct() / sharers;
  Grads grads(3);
  if (s.v.wanted[0]) grads[0] = kept * part;
  if (s.v.wanted[2]) grads[2] = hit * s.taken(part);
  return grads;
}

// Shifts x [B, P] or [B, pre, P, post] by `by` positions along P, and fills with `value`.
Value shifted(Value x, int64_t by, Value value) {
  const size_t along = x.rank() == 2 ? 1 : 2;
  Dims lo(x.shape().size(), 0), hi = lo, interior = lo;
  lo[along] = by;
  hi[along] = -by;
  return pad(x, value, lo, hi, interior);
}

// Updates in the order of their indices: keys [B, P], updates [B, pre, P, post].
struct SortedUpdates {
  Value keys, updates;

  // The product of the updates with the same key before (direction 1) or after (-1) each one, by doubling.
  Value products_beside(int64_t direction) const {
    Builder& b = updates.builder();
    const Value one = full(b, {updates.dtype(), {}}, 1), none = full(b, {DType::boolean, {}}, 0);
    const Value all = full(b, {DType::boolean, keys.shape()}, 1), key = full(b, {keys.dtype(), {}}, 0);
    const int64_t n = keys.shape()[1];
    const auto moved = [&](Value x, int64_t by) {
      const Value same = bit_and(eq(shifted(keys, by, key), keys), shifted(all, by, none));
      return select(broadcast(same, x.shape(), {0, 2}), shifted(x, by, one), ones_like(x));
    };
    Value y = moved(updates, direction);
    for (int64_t by = 1; by < n; by *= 2) y = y * moved(y, direction * by);
    return y;
  }
};

// Of each update, the product of the others at the same index: exact if some are zero, and differentiable.
Value product_of_others(const Scattered& s) {
  const Shape shape = s.updates.shape();
  const int64_t batch = extent(shape, 0, s.batch_dims), pre = extent(shape, s.batch_dims, s.axis);
  const int64_t places = extent(s.indices.shape(), s.batch_dims, s.indices.rank());
  const int64_t post = extent(s.x.shape(), s.axis + 1, s.x.rank());
  const Value indices = reshape(s.indices, {batch, places});
  const Value numbers = index_iota(s.x.builder(), {batch, places}, 1);
  const Values order = sort({indices, numbers}, 1);
  const Value back = sort({order[1], numbers}, 1)[1];
  const SortedUpdates sorted{order[0], gather(reshape(s.updates, {batch, pre, places, post}), order[1], 2, 1)};
  const Value others = sorted.products_beside(1) * sorted.products_beside(-1);
  return reshape(gather(others, back, 2, 1), shape);
}

Grads multiply_gradient(const Scattered& s) {
  Grads grads(3);
  if (s.v.wanted[0]) grads[0] = s.v.ct() * s.put(ones_like(s.x), s.updates, "multiply");
  if (!s.v.wanted[2]) return grads;
  const Value taken = s.taken(s.v.ct() * s.x);
  grads[2] = select(s.inside(), s.unique ? taken : taken * product_of_others(s), zeros_like(s.updates));
  return grads;
}

}  // namespace

Grads scatter_vjp(const Vjp& v) {
  const Scattered s(v);
  if (count(s.updates.shape()) == 0 || s.n == 0) return {v.ct(), {}, zeros_like(s.updates)};
  switch (scatter_how(v.attrs)) {
    case ScatterHow::set:
      return set_gradient(s);
    case ScatterHow::multiply:
      return multiply_gradient(s);
    default:
      return extreme_gradient(s);
  }
}

}  // namespace lockstep
