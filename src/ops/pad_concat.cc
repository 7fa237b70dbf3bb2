// pad and concatenate.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "ops/view_copy.h"
#include "program/definitions.h"

namespace lockstep {
namespace {

// ---- pad

std::vector<Type> pad_type(Types in, const Attrs& attrs) {
  expect_operands("pad", in, 2);
  expect_same_dtype("pad", in[0], in[1]);
  const Dims &lo = attrs.ints("lo"), &hi = attrs.ints("hi"), &interior = attrs.ints("interior");
  const Shape& x = in[0].shape;
  if (in[1].rank() != 0) throw_error("pad: the value is {}; it must be a scalar", to_string(in[1]));
  if (lo.size() != x.size() || hi.size() != x.size() || interior.size() != x.size())
    throw_error(
        "pad: {} has {} dimensions and got {} low, {} high and {} interior amounts; give one of each per dimension",
        to_string(x), x.size(), lo.size(), hi.size(), interior.size());
  Shape shape;
  for (size_t d = 0; d < x.size(); ++d) {
    if (interior[d] < 0)
      throw_error("pad: interior amount {} of dimension {} is negative; use slice with a stride to take elements out",
                  interior[d], d);
    int64_t n = 0;
    if (__builtin_mul_overflow(std::max<int64_t>(x[d] - 1, 0), interior[d], &n) ||
        __builtin_add_overflow(n, x[d], &n) || __builtin_add_overflow(n, lo[d], &n) ||
        __builtin_add_overflow(n, hi[d], &n))
      throw_error("pad: low {}, high {} and interior {} make dimension {} of {} too large for 64 bits", lo[d], hi[d],
                  interior[d], d, to_string(x));
    if (n < 0)
      throw_error("pad: low {} and high {} remove more than all of dimension {} of {}; the result would have extent {}",
                  lo[d], hi[d], d, to_string(x), n);
    shape.push_back(n);
  }
  return {{in[0].dtype, shape}};
}

Rule pad_rule(Types in, const Attrs& attrs) {
  Factors factors;
  Rule rule{{"", ""}, {""}, ""};
  for (size_t d = 0; d < in[0].shape.size(); ++d) {
    const char letter = factors.next();
    rule.in[0] += letter;
    if (attrs.ints("lo")[d] == 0 && attrs.ints("hi")[d] == 0 && attrs.ints("interior")[d] == 0) {
      rule.out[0] += letter;
      continue;
    }
    rule.out[0] += factors.next();
    rule.unsharded += {letter, rule.out[0].back()};
  }
  return rule;
}

// The elements of x inside y = pad(x): removes the padding.
Value unpad(Value y, const Attrs& attrs) {
  Dims lo = attrs.ints("lo"), hi = attrs.ints("hi"), strides = plus(attrs.ints("interior"), 1);
  for (int64_t& n : lo) n = -n;
  for (int64_t& n : hi) n = -n;
  const Value cut = pad(y, full(y.builder(), {y.dtype(), {}}, 0), lo, hi, Dims(lo.size(), 0));
  return slice(cut, Dims(lo.size(), 0), cut.shape(), strides);
}

Grads pad_vjp(const Vjp& v) {
  const Value to_x = unpad(v.ct(), v.attrs);
  if (!v.wanted[1]) return {to_x, {}};
  auto total = [](Value x) { return reduce_sum(x, counting(0, x.rank())); };
  return {to_x, sub(total(v.ct()), total(to_x))};
}

// The value is a scalar. A batch of them takes another equation: a selection between each of them and x padded with 0.
Batched pad_batch(const Batch& b) {
  if (!b.batched[1]) return batch_by_rule(b);
  const Dims lo = prepend(0, b.attrs.ints("lo")), hi = prepend(0, b.attrs.ints("hi")),
             interior = prepend(0, b.attrs.ints("interior"));
  const Value x = with_batch(b, 0);
  const Value padded = pad(x, full(b.builder, {x.dtype(), {}}, 0), lo, hi, interior);
  const Value inside = full(b.builder, {DType::boolean, x.shape()}, 0);
  const Value outside = pad(inside, full(b.builder, {DType::boolean, {}}, 1), lo, hi, interior);
  return select(outside, broadcast(b.in[1], padded.shape(), {0}), padded);
}

Value pad_fold(const Fold& f) {
  auto zero = [&](std::string_view name) {
    const Dims& amounts = f.attrs.ints(name);
    return std::all_of(amounts.begin(), amounts.end(), [](int64_t n) { return n == 0; });
  };
  if (f.in[0].type() == f.type && zero("lo") && zero("hi")) return f.in[0];
  const Attr *x = full_value(f.in[0]), *value = full_value(f.in[1]);
  if (value && (count(f.in[0].shape()) == 0 || (x && equal_attrs(*x, *value))))
    return full_of(f.builder, f.type, *value);
  return {};
}

Kernel pad_cpu(const KernelSpec& spec) {
  const Type &x = spec.in[0], &y = spec.out[0];
  const Dims &lo = spec.attrs.ints("lo"), &interior = spec.attrs.ints("interior");
  const Dims x_strides = dense_strides(x.shape);
  Dims y_strides = dense_strides(y.shape);
  const AffineCopy fill(size_of(y.dtype), y.shape, Dims(y.shape.size(), 0), y_strides);
  // Elements [first, last) of each dimension of x are inside y; element `first` is at `place`.
  Shape landing;
  int64_t from = 0, to = 0;
  for (size_t d = 0; d < x.shape.size(); ++d) {
    const int64_t step = interior[d] + 1, low = std::max<int64_t>(-lo[d], 0), room = y.shape[d] - lo[d];
    const int64_t first = (low + step - 1) / step;
    const int64_t last = std::min(x.shape[d], room <= 0 ? 0 : (room + step - 1) / step);
    landing.push_back(std::max<int64_t>(last - first, 0));
    from += first * x_strides[d];
    to += (lo[d] + first * step) * y_strides[d];
    y_strides[d] *= step;
  }
  const bool padded = count(landing) < count(y.shape);
  const AffineCopy copy(size_of(x.dtype), landing, x_strides, y_strides);
  return [=, bytes = size_of(x.dtype), pool = &spec.pool](const void* const* in, void* const* out) {
    if (padded) fill(in[1], out[0], *pool);
    copy(static_cast<const std::byte*>(in[0]) + from * bytes, static_cast<std::byte*>(out[0]) + to * bytes, *pool);
  };
}

// ---- concatenate

std::vector<Type> concatenate_type(Types in, const Attrs& attrs) {
  if (in.empty()) throw_error("concatenate: got no operands; give at least one");
  const int64_t axis = attrs.integer("axis");
  expect_axis("concatenate", axis, in[0].shape);
  Type out = in[0];
  for (size_t i = 1; i < in.size(); ++i) {
    expect_same_dtype("concatenate", in[0], in[i]);
    Shape rest = in[i].shape;
    if (in[i].rank() == out.rank()) rest[static_cast<size_t>(axis)] = in[0].shape[static_cast<size_t>(axis)];
    if (rest != in[0].shape)
      throw_error("concatenate: {} and {} do not fit along axis {}; all other extents must be equal",
                  to_string(in[0].shape), to_string(in[i].shape), axis);
    out.shape[static_cast<size_t>(axis)] += in[i].shape[static_cast<size_t>(axis)];
  }
  return {out};
}

Rule concatenate_rule(Types in, const Attrs& attrs) {
  const auto axis = static_cast<size_t>(attrs.integer("axis"));
  Factors factors;
  const std::string shared = factors.next(in[0].rank());
  Rule rule{{}, {shared}, shared.substr(axis, 1)};
  // Operands of the same extent share a factor, which is never sharded: there may be hundreds of operands. If there are
  // more extents than letters, the others share the last one.
  std::map<int64_t, char> by_extent;
  for (const Type& each : in) {
    const auto [at, fresh] = by_extent.try_emplace(each.shape[axis], rule.unsharded.back());
    if (fresh && factors.left() > 0) rule.unsharded += at->second = factors.next();
    rule.in.push_back(shared);
    rule.in.back()[axis] = at->second;
  }
  return rule;
}

Grads concatenate_vjp(const Vjp& v) {
  const auto axis = static_cast<size_t>(v.attrs.integer("axis"));
  Dims starts(static_cast<size_t>(v.ct().rank()), 0), limits = v.ct().shape();
  const Dims strides(starts.size(), 1);
  Grads grads;
  for (size_t i = 0; i < v.in.size(); ++i) {
    limits[axis] = starts[axis] + v.in[i].shape()[axis];
    grads.push_back(v.wanted[i] ? slice(v.ct(), starts, limits, strides) : Value());
    starts[axis] = limits[axis];
  }
  return grads;
}

Value concatenate_fold(const Fold& f) {
  const int64_t axis = f.attrs.integer("axis");
  Values filled;
  for (const Value& x : f.in)
    if (x.shape()[static_cast<size_t>(axis)] != 0) filled.push_back(x);
  if (filled.size() == 1) return filled[0];
  const Attr* first = full_value(f.in[0]);
  auto same = [&](const Value& x) {
    const Attr* value = full_value(x);
    return value && equal_attrs(*value, *first);
  };
  if (first && std::all_of(f.in.begin(), f.in.end(), same)) return full_of(f.builder, f.type, *first);
  if (filled.empty() || filled.size() == f.in.size()) return {};
  return concatenate(filled, axis);
}

// The gradient of slices that divide an array is a sum of slices padded with zeros: their concatenation. (The sum turns
// -0 into 0.)

// The terms of a sum to which each equation adds a padded array. Empty if it is not such a sum.
std::vector<DefinedValue> padded_terms(DefinedValue sum) {
  const auto is_padded = [](const DefinedValue& x) { return x.eqn() && x.eqn()->op == &pad_op; };
  std::vector<DefinedValue> out;
  while (sum.eqn() && sum.eqn()->op == &add_op) {
    const DefinedValue a = sum.operand(0), b = sum.operand(1);
    if (!is_padded(a) && !is_padded(b)) return {};
    out.push_back(is_padded(b) ? b : a);
    sum = is_padded(b) ? a : b;
  }
  if (!is_padded(sum)) return {};
  out.push_back(sum);
  return out;
}

// The only dimension in which the array is padded, by zeros before and after its elements.
std::optional<size_t> zero_padded_axis(const DefinedValue& padded) {
  const Attrs& attrs = padded.eqn()->attrs;
  const Dims &lo = attrs.ints("lo"), &hi = attrs.ints("hi"), &interior = attrs.ints("interior");
  std::optional<size_t> axis;
  for (size_t d = 0; d < lo.size(); ++d) {
    if (lo[d] < 0 || hi[d] < 0 || interior[d] != 0) return {};
    if (lo[d] == 0 && hi[d] == 0) continue;
    if (axis) return {};
    axis = d;
  }
  const Attr* value = constant_value(padded.operand(1).eqn());
  if (!value) return {};
  const auto* integer = std::get_if<int64_t>(value);
  return (integer ? *integer == 0 : std::get<double>(*value) == 0) ? axis : std::nullopt;
}

Value recognize_concatenate(const Recognition& r) {
  if (r.eqn.op != &add_op) return {};
  std::vector<DefinedValue> terms = padded_terms(r.definitions.value(r.eqn.out[0]));
  if (terms.empty()) return {};
  const std::optional<size_t> axis = zero_padded_axis(terms[0]);
  if (!axis) return {};
  const auto begin = [&](const DefinedValue& each) { return each.eqn()->attrs.ints("lo")[*axis]; };
  std::sort(terms.begin(), terms.end(),
            [&](const DefinedValue& a, const DefinedValue& b) { return begin(a) < begin(b); });
  int64_t end = 0;
  for (const DefinedValue& each : terms) {
    if (each.where != &r.definitions || zero_padded_axis(each) != axis || begin(each) != end) return {};
    end += each.operand(0).type().shape[*axis];
  }
  if (end != terms[0].type().shape[*axis]) return {};
  if (r.map.empty()) return Value(&r.builder, r.eqn.out[0]);  // possible
  Values parts;
  for (const DefinedValue& each : terms) parts.push_back(r.map[each.eqn()->in[0]]);
  return concatenate(parts, static_cast<int64_t>(*axis));
}

Kernel concatenate_cpu(const KernelSpec& spec) {
  const auto axis = static_cast<size_t>(spec.attrs.integer("axis"));
  const int64_t bytes = size_of(spec.out[0].dtype);
  const Dims strides = dense_strides(spec.out[0].shape);
  std::vector<AffineCopy> copies;
  std::vector<int64_t> offsets;
  int64_t at = 0;
  for (const Type& x : spec.in) {
    copies.emplace_back(bytes, x.shape, dense_strides(x.shape), strides);
    offsets.push_back(at * strides[axis] * bytes);
    at += x.shape[axis];
  }
  return [copies, offsets, pool = &spec.pool](const void* const* in, void* const* out) {
    for (size_t i = 0; i < copies.size(); ++i) copies[i](in[i], static_cast<std::byte*>(out[0]) + offsets[i], *pool);
  };
}

}  // namespace

constinit const Op pad_op = {
    .name = "pad",
    .linear = Linear::all,
    .rule = pad_rule,
    .type = pad_type,
    .vjp = pad_vjp,
    .batch = pad_batch,
    .dim_attrs = {{"lo", DimAttr::offsets}, {"hi", DimAttr::offsets}, {"interior", DimAttr::offsets}},
    .fold = pad_fold,
    .takes_float8 = true,
    .cpu = pad_cpu,
    .cuda = LOCKSTEP_CUDA(pad_cuda),
    .cuda_task = LOCKSTEP_CUDA(&pad_task)};
constinit const Op concatenate_op = {.name = "concatenate",
                                     .linear = Linear::all,
                                     .rule = concatenate_rule,
                                     .type = concatenate_type,
                                     .vjp = concatenate_vjp,
                                     .dim_attrs = {{"axis", DimAttr::dims}},
                                     .fold = concatenate_fold,
                                     .recognize = recognize_concatenate,
                                     .takes_float8 = true,
                                     .cpu = concatenate_cpu,
                                     .cuda = LOCKSTEP_CUDA(concatenate_cuda),
                                     .cuda_task = LOCKSTEP_CUDA(&concatenate_task)};

Value pad(Value x, Value value, std::vector<int64_t> lo, std::vector<int64_t> hi, std::vector<int64_t> interior) {
  return emit(pad_op, {x, value}, {{"lo", std::move(lo)}, {"hi", std::move(hi)}, {"interior", std::move(interior)}});
}

Value concatenate(const Values& operands, int64_t axis) {
  if (operands.empty()) throw_error("concatenate: got no operands; give at least one");
  return emit(concatenate_op, operands, {{"axis", axis}});
}

}  // namespace lockstep
