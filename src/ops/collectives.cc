#include "ops/collectives.h"

#include <algorithm>

#include "base/check.h"
#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

const std::string& axis_of(const Attrs& attrs) { return attrs.get<std::string>("axis"); }
int64_t size_of_axis(const Attrs& attrs) { return attrs.integer("size"); }

bool varies(const Type& t, const std::string& axis) {
  return std::binary_search(t.varying.begin(), t.varying.end(), axis);
}

// Checks that the operand varies over the axis, and returns it.
const Type& operand(std::string_view op, Types in, const Attrs& attrs) {
  expect_operands(op, in, 1);
  LOCKSTEP_CHECK(varies(in[0], axis_of(attrs)), "{}: {} does not vary over {}", op, to_string(in[0]), axis_of(attrs));
  return in[0];
}

// Also checks that its dimension `dim` has the extent of the axis.
const Type& sliced_operand(std::string_view op, Types in, const Attrs& attrs) {
  const Type& t = operand(op, in, attrs);
  const int64_t dim = attrs.integer("dim"), size = size_of_axis(attrs);
  expect_axis(op, dim, t.shape);
  if (t.shape[static_cast<size_t>(dim)] != size)
    throw_error("{}: dimension {} of {} must have the extent of axis \"{}\", {}", op, dim, to_string(t), axis_of(attrs),
                size);
  return t;
}

bool is_over_batch_axis(const Batch& b) { return b.axis == axis_of(b.attrs); }

// The same collective, over another axis than the batch, on operands with a leading batch dimension.
Value same_collective(const Batch& b) { return b.builder.emit(b.op, b.in, b.attrs)[0]; }
Value same_collective_next_dim(const Batch& b) {
  Attrs attrs = b.attrs;
  attrs.set("dim", b.attrs.integer("dim") + 1);
  return b.builder.emit(b.op, b.in, std::move(attrs))[0];
}

Batched unbatched(Value v) { return {Values{v}, {false}}; }

// The sum of a value that is the same on every device.
Value sum_of_equal(const Batch& b) { return mul(b.in[0], full_like(b.in[0], static_cast<double>(b.size))); }

Value add_dim(Value x, int64_t dim, int64_t extent) {
  Shape shape = x.shape();
  shape.insert(shape.begin() + dim, extent);
  Dims dims;
  for (int64_t d = 0; d < x.rank(); ++d) dims.push_back(d < dim ? d : d + 1);
  return broadcast(x, std::move(shape), std::move(dims));
}

// ---- pvary

std::vector<Type> pvary_type(Types in, const Attrs& attrs) {
  expect_operands("pvary", in, 1);
  Type out = in[0];
  out.varying = union_of(out.varying, {axis_of(attrs)});
  return {out};
}

// A psum needs no axis size here: batching over the axis supplies it.
Grads pvary_vjp(const Vjp& v) { return {psum(v.ct(), v.attrs.get<std::string>("axis"))}; }

Batched pvary_batch(const Batch& b) {
  if (is_over_batch_axis(b)) return {Values{b.in[0]}, {b.batched[0]}};  // stored once
  return same_collective(b);
}

// ---- psum, pmax, pmin

std::vector<Type> reduced_type(Types in, const Attrs& attrs) {
  Type out = operand("psum", in, attrs);
  out.varying = without_axis_name(out.varying, axis_of(attrs));
  return {out};
}

Grads psum_vjp(const Vjp& v) { return {pvary(v.ct(), axis_of(v.attrs))}; }

Batched psum_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return same_collective(b);
  return unbatched(b.batched[0] ? reduce_sum(b.in[0], {0}) : sum_of_equal(b));
}

// The devices that hold the extreme share the cotangent equally.
Grads collective_extreme_vjp(const Vjp& v) {
  const std::string& axis = axis_of(v.attrs);
  const Value mine = cast(eq(v.in[0], pvary(v.y(), axis)), v.in[0].dtype());
  const Value share = div(v.ct(), psum(mine, axis));
  return {mul(pvary(share, axis), mine)};
}

Batched pmax_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return same_collective(b);
  return unbatched(b.batched[0] ? reduce_max(b.in[0], {0}) : b.in[0]);
}

Batched pmin_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return same_collective(b);
  return unbatched(b.batched[0] ? reduce_min(b.in[0], {0}) : b.in[0]);
}

// ---- all_gather, psum_scatter: transposes of each other

std::vector<Type> all_gather_type(Types in, const Attrs& attrs) {
  Type out = operand("all_gather", in, attrs);
  const int64_t dim = attrs.integer("dim");
  if (dim < 0 || dim > out.rank())
    throw_error("all_gather: new dimension {} is out of range for the result {}; valid: 0 to {}", dim, to_string(out),
                out.rank());
  out.shape.insert(out.shape.begin() + dim, size_of_axis(attrs));
  return {out};
}

Grads all_gather_vjp(const Vjp& v) { return {emit(psum_scatter_op, {v.ct()}, v.attrs)}; }

Batched all_gather_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return same_collective_next_dim(b);
  const int64_t dim = b.attrs.integer("dim");
  // Every device gets the same value, so it is stored once.
  if (b.batched[0]) return unbatched(transpose(b.in[0], move_dim(b.in[0].rank(), 0, dim)));
  return unbatched(add_dim(b.in[0], dim, b.size));
}

std::vector<Type> psum_scatter_type(Types in, const Attrs& attrs) {
  Type out = sliced_operand("psum_scatter", in, attrs);
  out.shape.erase(out.shape.begin() + attrs.integer("dim"));
  return {out};
}

Grads psum_scatter_vjp(const Vjp& v) { return {emit(all_gather_op, {v.ct()}, v.attrs)}; }

Batched psum_scatter_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return same_collective_next_dim(b);
  const Value sum = b.batched[0] ? reduce_sum(b.in[0], {0}) : sum_of_equal(b);
  return transpose(sum, move_dim(sum.rank(), b.attrs.integer("dim"), 0));
}

// ---- all_to_all: its own transpose

std::vector<Type> all_to_all_type(Types in, const Attrs& attrs) { return {sliced_operand("all_to_all", in, attrs)}; }

Grads all_to_all_vjp(const Vjp& v) { return {emit(all_to_all_op, {v.ct()}, v.attrs)}; }

Batched all_to_all_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return same_collective_next_dim(b);
  const int64_t dim = b.attrs.integer("dim");
  const Value x = with_batch(b, 0);
  Dims swapped = counting(0, x.rank());
  std::swap(swapped[0], swapped[static_cast<size_t>(dim + 1)]);
  return transpose(x, swapped);
}

// ---- ppermute

std::vector<Type> ppermute_type(Types in, const Attrs& attrs) {
  const Type& t = operand("ppermute", in, attrs);
  const auto& p = attrs.ints("permutation");
  const int64_t size = size_of_axis(attrs);
  std::vector<bool> from(static_cast<size_t>(size), false), to(from);
  for (size_t i = 0; i + 1 < p.size(); i += 2) {
    for (int64_t device : {p[i], p[i + 1]})
      if (device < 0 || device >= size)
        throw_error("ppermute: device {} is out of range for axis \"{}\" of {} devices; valid positions: 0 to {}",
                    device, axis_of(attrs), size, size - 1);
    if (from[static_cast<size_t>(p[i])])
      throw_error("ppermute: source {} appears twice; a device sends to one other: use all_gather to send to several",
                  p[i]);
    if (to[static_cast<size_t>(p[i + 1])])
      throw_error("ppermute: destination {} appears twice; a device receives from one other: remove a pair", p[i + 1]);
    from[static_cast<size_t>(p[i])] = to[static_cast<size_t>(p[i + 1])] = true;
  }
  return {t};
}

Grads ppermute_vjp(const Vjp& v) {
  Dims inverse_pairs = v.attrs.ints("permutation");
  for (size_t i = 0; i + 1 < inverse_pairs.size(); i += 2) std::swap(inverse_pairs[i], inverse_pairs[i + 1]);
  return {ppermute(v.ct(), axis_of(v.attrs), size_of_axis(v.attrs), inverse_pairs)};
}

// Consecutive devices that move together become one slice.
Batched ppermute_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return same_collective(b);
  const Value x = with_batch(b, 0);
  std::vector<int64_t> source(static_cast<size_t>(b.size), -1);
  const auto& p = b.attrs.ints("permutation");
  for (size_t i = 0; i + 1 < p.size(); i += 2) source[static_cast<size_t>(p[i + 1])] = p[i];
  Values pieces;
  for (size_t begin = 0, end; begin < source.size(); begin = end) {
    const bool zeros = source[begin] < 0;
    for (end = begin + 1; end < source.size() && (zeros ? source[end] < 0 : source[end] == source[end - 1] + 1);
         ++end) {
    }
    const auto n = static_cast<int64_t>(end - begin);
    Dims starts(static_cast<size_t>(x.rank()), 0), limits = x.shape();
    if (zeros) {
      Type type = x.type();
      type.shape[0] = n;
      pieces.push_back(full(b.builder, type, int64_t{0}));
      continue;
    }
    starts[0] = source[begin];
    limits[0] = source[begin] + n;
    pieces.push_back(slice(x, starts, limits, Dims(starts.size(), 1)));
  }
  return concatenate(pieces, 0);
}

// ---- axis_index

std::vector<Type> axis_index_type(Types in, const Attrs& attrs) {
  expect_operands("axis_index", in, 0);
  return {Type{DType::i32, {}, {axis_of(attrs)}}};
}

Batched axis_index_batch(const Batch& b) {
  if (!is_over_batch_axis(b)) return unbatched(axis_index(b.builder, axis_of(b.attrs), size_of_axis(b.attrs)));
  return iota(b.builder, {DType::i32, {b.size}}, 0);
}

Value emit_collective(const Op& op, Value x, const std::string& axis, int64_t size, int64_t dim) {
  return emit(op, {pvary(x, axis)}, {{"axis", axis}, {"size", size}, {"dim", dim}});
}

}  // namespace

constinit const Op pvary_op = {.name = "pvary",
                               .linear = Linear::all,
                               .type = pvary_type,
                               .vjp = pvary_vjp,
                               .batch = pvary_batch,
                               .takes_float8 = true,
                               .own_varying = true};
constinit const Op psum_op = {.name = "psum",
                              .linear = Linear::all,
                              .type = reduced_type,
                              .vjp = psum_vjp,
                              .batch = psum_batch,
                              .own_varying = true};
constinit const Op pmax_op = {
    .name = "pmax", .type = reduced_type, .vjp = collective_extreme_vjp, .batch = pmax_batch, .own_varying = true};
constinit const Op pmin_op = {
    .name = "pmin", .type = reduced_type, .vjp = collective_extreme_vjp, .batch = pmin_batch, .own_varying = true};
constinit const Op all_gather_op = {.name = "all_gather",
                                    .linear = Linear::all,
                                    .type = all_gather_type,
                                    .vjp = all_gather_vjp,
                                    .batch = all_gather_batch,
                                    .takes_float8 = true,
                                    .own_varying = true};
constinit const Op psum_scatter_op = {.name = "psum_scatter",
                                      .linear = Linear::all,
                                      .type = psum_scatter_type,
                                      .vjp = psum_scatter_vjp,
                                      .batch = psum_scatter_batch,
                                      .own_varying = true};
constinit const Op all_to_all_op = {.name = "all_to_all",
                                    .linear = Linear::all,
                                    .type = all_to_all_type,
                                    .vjp = all_to_all_vjp,
                                    .batch = all_to_all_batch,
                                    .takes_float8 = true,
                                    .own_varying = true};
constinit const Op ppermute_op = {.name = "ppermute",
                                  .linear = Linear::all,
                                  .type = ppermute_type,
                                  .vjp = ppermute_vjp,
                                  .batch = ppermute_batch,
                                  .takes_float8 = true,
                                  .own_varying = true};
constinit const Op axis_index_op = {
    .name = "axis_index", .type = axis_index_type, .batch = axis_index_batch, .own_varying = true};

Value pvary(Value x, const std::string& axis) {
  return varies(x.type(), axis) ? x : emit(pvary_op, {x}, {{"axis", axis}});
}
Value psum(Value x, const std::string& axis) {
  if (is_complex(x.dtype())) return by_parts(x, [&](Value part) { return psum(part, axis); });
  return emit(psum_op, {pvary(x, axis)}, {{"axis", axis}});
}
Value pmax(Value x, const std::string& axis) { return emit(pmax_op, {pvary(x, axis)}, {{"axis", axis}}); }
Value pmin(Value x, const std::string& axis) { return emit(pmin_op, {pvary(x, axis)}, {{"axis", axis}}); }
Value all_gather(Value x, const std::string& axis, int64_t size, int64_t dim) {
  return emit_collective(all_gather_op, x, axis, size, dim);
}
Value psum_scatter(Value x, const std::string& axis, int64_t size, int64_t dim) {
  if (is_complex(x.dtype())) return by_parts(x, [&](Value part) { return psum_scatter(part, axis, size, dim); });
  return emit_collective(psum_scatter_op, x, axis, size, dim);
}
Value all_to_all(Value x, const std::string& axis, int64_t size, int64_t dim) {
  return emit_collective(all_to_all_op, x, axis, size, dim);
}
Value ppermute(Value x, const std::string& axis, int64_t size, std::vector<int64_t> permutation) {
  return emit(ppermute_op, {pvary(x, axis)}, {{"axis", axis}, {"size", size}, {"permutation", std::move(permutation)}});
}
Value axis_index(Builder& b, const std::string& axis, int64_t size) {
  return b.emit(axis_index_op, {}, {{"axis", axis}, {"size", size}})[0];
}

}  // namespace lockstep
