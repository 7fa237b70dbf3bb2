// The rows that are views of their operand: broadcast, reshape, transpose, slice, reverse, stop_gradient.
#include <algorithm>
#include <numeric>

#include "ops/dims.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "ops/view_copy.h"

namespace lockstep {
namespace {

// The operand of the equation that computes `v`, if its op is `op`; else absent. Copies its attributes to `attrs`.
Value operand_of(Builder& b, Value v, const Op& op, Attrs& attrs) {
  const Eqn* eqn = b.definition(v);
  if (!eqn || eqn->op != &op) return {};
  attrs = eqn->attrs;
  return Value(&b, eqn->in[0]);
}

// A view of a full is a full.
Value fold_full(const Fold& f) {
  const Attr* value = full_value(f.in[0]);
  return value ? full_of(f.builder, f.type, *value) : Value();
}

// ---- broadcast

std::vector<Type> broadcast_type(Types in, const Attrs& attrs) {
  expect_operands("broadcast", in, 1);
  const Shape& shape = attrs.ints("shape");
  const Dims& dims = attrs.ints("dims");
  count(shape);
  if (dims.size() != in[0].shape.size())
    throw_error("broadcast: {} has {} dimensions and got {} output dimensions; give one for each",
                to_string(in[0].shape), in[0].rank(), dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    expect_axis("broadcast", dims[i], shape);
    if (i > 0 && dims[i] <= dims[i - 1])
      throw_error("broadcast: the output dimensions {} do not increase; transpose first", to_string(dims));
    if (shape[static_cast<size_t>(dims[i])] != in[0].shape[i])
      throw_error("broadcast: dimension {} of {} cannot become dimension {} of {}; the extents must be equal", i,
                  to_string(in[0].shape), dims[i], to_string(shape));
  }
  return {{in[0].dtype, shape}};
}

Rule broadcast_rule(Types, const Attrs& attrs) {
  const std::string out = Factors().next(static_cast<int64_t>(attrs.ints("shape").size()));
  std::string in;
  for (int64_t d : attrs.ints("dims")) in += out[static_cast<size_t>(d)];
  return {{in}, {out}, ""};
}

Grads broadcast_vjp(const Vjp& v) {
  Dims summed;
  for (int64_t d = 0; d < v.ct().rank(); ++d)
    if (!contains(v.attrs.ints("dims"), d)) summed.push_back(d);
  return {reduce_sum(v.ct(), summed)};
}

Value broadcast_fold(const Fold& f) {
  const Value x = f.in[0];
  if (x.type() == f.type) return x;
  if (Value v = fold_full(f)) return v;
  // The counts are equal, so only dimensions of extent 1 are new.
  if (const int64_t n = count(f.type.shape); n > 0 && n == count(x.shape())) return reshape(x, f.type.shape);
  Attrs inner;
  if (const Value source = operand_of(f.builder, x, broadcast_op, inner)) {
    Dims dims = inner.ints("dims");
    for (int64_t& d : dims) d = f.attrs.ints("dims")[static_cast<size_t>(d)];
    return broadcast(source, f.type.shape, dims);
  }
  return {};
}

View broadcast_view(const Type& in, const Type& out, const Attrs& attrs) {
  View view{0, Dims(out.shape.size(), 0)};
  const Dims strides = dense_strides(in.shape);
  for (size_t i = 0; i < strides.size(); ++i) view.strides[static_cast<size_t>(attrs.ints("dims")[i])] = strides[i];
  return view;
}

// ---- reshape

std::vector<Type> reshape_type(Types in, const Attrs& attrs) {
  expect_operands("reshape", in, 1);
  const Shape& shape = attrs.ints("shape");
  const int64_t before = count(in[0].shape), after = count(shape);
  if (before != after)
    throw_error("reshape: {} has {} elements and {} has {}; the number of elements must not change",
                to_string(in[0].shape), before, to_string(shape), after);
  return {{in[0].dtype, shape}};
}

// An unchanged dimension has the same factor before and after. Of dimensions that are split or merged, the outermost
// before and after share a factor whose steps cover the same elements of both; the others are not sharded. If there are
// no elements, only equal leading dimensions share factors.
Rule reshape_rule(Types in, const Attrs& attrs) {
  const Shape &a = in[0].shape, &b = attrs.ints("shape");
  Factors factors;
  Rule rule{{""}, {""}, "", "", Steps(1), Steps(1)};
  auto add_unsharded = [&](std::string& term, size_t n) {
    const std::string letters = factors.next(static_cast<int64_t>(n));
    term += letters;
    rule.unsharded += letters;
  };
  auto add_shared = [&](int64_t in_step, int64_t out_step) {
    const char letter = factors.next();
    rule.in[0] += letter;
    rule.out[0] += letter;
    if (in_step > 1) rule.in_step[0][letter] = in_step;
    if (out_step > 1) rule.out_step[0][letter] = out_step;
  };
  const bool empty = count(a) == 0;
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (empty && a[i] != b[j]) break;
    if (a[i] == b[j]) {
      add_shared(1, 1);
      ++i, ++j;
    } else if (a[i] == 1) {
      add_unsharded(rule.in[0], 1);
      ++i;
    } else if (b[j] == 1) {
      add_unsharded(rule.out[0], 1);
      ++j;
    } else {
      size_t i1 = i + 1, j1 = j + 1;
      for (int64_t left = a[i], right = b[j]; left != right;) {
        if (left < right)
          left *= a[i1++];
        else
          right *= b[j1++];
      }
      const int64_t steps = std::gcd(a[i], b[j]);
      const size_t shared = steps > 1 ? 1 : 0;
      if (shared) add_shared(a[i] / steps, b[j] / steps);
      add_unsharded(rule.in[0], i1 - i - shared);
      add_unsharded(rule.out[0], j1 - j - shared);
      i = i1, j = j1;
    }
  }
  add_unsharded(rule.in[0], a.size() - i);
  add_unsharded(rule.out[0], b.size() - j);
  return rule;
}

Grads reshape_vjp(const Vjp& v) { return {reshape(v.ct(), v.in[0].shape())}; }

Value reshape_fold(const Fold& f) {
  if (f.in[0].type() == f.type) return f.in[0];
  if (Value v = fold_full(f)) return v;
  Attrs inner;
  const Value source = operand_of(f.builder, f.in[0], reshape_op, inner);
  if (!source) return {};
  return source.type() == f.type ? source : reshape(source, f.type.shape);
}

View dense_result_view(const Type&, const Type& out, const Attrs&) { return {0, dense_strides(out.shape)}; }

bool same_memory(Types, Types, const Attrs&, size_t, size_t) { return true; }

// ---- transpose

std::vector<Type> transpose_type(Types in, const Attrs& attrs) {
  expect_operands("transpose", in, 1);
  const Dims& permutation = attrs.ints("permutation");
  Dims sorted = permutation;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != counting(0, in[0].rank()))
    throw_error("transpose: {} is not a permutation of the {} dimensions of {}; name each dimension once",
                to_string(permutation), in[0].rank(), to_string(in[0].shape));
  Shape shape;
  for (int64_t d : permutation) shape.push_back(in[0].shape[static_cast<size_t>(d)]);
  return {{in[0].dtype, shape}};
}

Rule transpose_rule(Types in, const Attrs& attrs) {
  const std::string term = Factors().next(in[0].rank());
  std::string out;
  for (int64_t d : attrs.ints("permutation")) out += term[static_cast<size_t>(d)];
  return {{term}, {out}, ""};
}

Grads transpose_vjp(const Vjp& v) { return {transpose(v.ct(), inverse(v.attrs.ints("permutation")))}; }

Value transpose_fold(const Fold& f) {
  const Dims& permutation = f.attrs.ints("permutation");
  if (permutation == counting(0, f.in[0].rank())) return f.in[0];
  if (Value v = fold_full(f)) return v;
  Dims moved;
  for (int64_t d : permutation)
    if (f.in[0].shape()[static_cast<size_t>(d)] != 1) moved.push_back(d);
  if (std::is_sorted(moved.begin(), moved.end())) return reshape(f.in[0], f.type.shape);
  Attrs inner;
  const Value source = operand_of(f.builder, f.in[0], transpose_op, inner);
  if (!source) return {};
  Dims both;
  for (int64_t d : permutation) both.push_back(inner.ints("permutation")[static_cast<size_t>(d)]);
  return both == counting(0, source.rank()) ? source : transpose(source, both);
}

View transpose_view(const Type& in, const Type&, const Attrs& attrs) {
  const Dims strides = dense_strides(in.shape);
  View view;
  for (int64_t d : attrs.ints("permutation")) view.strides.push_back(strides[static_cast<size_t>(d)]);
  return view;
}

// ---- slice

std::vector<Type> slice_type(Types in, const Attrs& attrs) {
  expect_operands("slice", in, 1);
  const Dims &starts = attrs.ints("starts"), &limits = attrs.ints("limits"), &strides = attrs.ints("strides");
  const Shape& x = in[0].shape;
  if (starts.size() != x.size() || limits.size() != x.size() || strides.size() != x.size())
    throw_error(
        "slice: {} has {} dimensions and got {} starts, {} limits and {} strides; give one of each per dimension",
        to_string(x), x.size(), starts.size(), limits.size(), strides.size());
  Shape shape;
  for (size_t d = 0; d < x.size(); ++d) {
    if (strides[d] < 1)
      throw_error("slice: stride {} of dimension {} is not positive; use reverse to walk backwards", strides[d], d);
    if (starts[d] < 0 || starts[d] > limits[d] || limits[d] > x[d])
      throw_error("slice: {}:{} is not within dimension {} of {}; ranges must be within 0:{}", starts[d], limits[d], d,
                  to_string(x), x[d]);
    shape.push_back((limits[d] - starts[d] + strides[d] - 1) / strides[d]);
  }
  return {{in[0].dtype, shape}};
}

Rule slice_rule(Types in, const Attrs& attrs) {
  Factors factors;
  Rule rule{{""}, {""}, ""};
  for (size_t d = 0; d < in[0].shape.size(); ++d) {
    const char letter = factors.next();
    rule.in[0] += letter;
    if (attrs.ints("starts")[d] == 0 && attrs.ints("limits")[d] == in[0].shape[d] && attrs.ints("strides")[d] == 1) {
      rule.out[0] += letter;
      continue;
    }
    rule.out[0] += factors.next();
    rule.unsharded += {letter, rule.out[0].back()};
  }
  return rule;
}

Grads slice_vjp(const Vjp& v) {
  const Dims &starts = v.attrs.ints("starts"), &strides = v.attrs.ints("strides");
  Dims hi, interior;
  for (size_t d = 0; d < starts.size(); ++d) {
    const int64_t n = v.ct().shape()[d];
    const int64_t end = n == 0 ? starts[d] : starts[d] + (n - 1) * strides[d] + 1;
    hi.push_back(v.in[0].shape()[d] - end);
    interior.push_back(strides[d] - 1);
  }
  return {pad(v.ct(), full(v.ct().builder(), {v.ct().dtype(), {}}, 0), starts, hi, interior)};
}

Attrs slice_local(const LocalEqnContext& v) {
  Attrs attrs = v.attrs;
  Dims limits = attrs.ints("limits");
  // Only dimensions that are taken completely are sharded.
  for (size_t d = 0; d < limits.size(); ++d)
    if (v.rule.in[0][d] == v.rule.out[0][d]) limits[d] = v.local_in[0].shape[d];
  attrs.set("limits", limits);
  return attrs;
}

Value slice_fold(const Fold& f) {
  if (f.in[0].type() == f.type) return f.in[0];
  if (Value v = fold_full(f)) return v;
  Attrs inner;
  const Value source = operand_of(f.builder, f.in[0], slice_op, inner);
  if (!source) return {};
  Dims starts = inner.ints("starts"), strides = inner.ints("strides"), limits;
  for (size_t d = 0; d < starts.size(); ++d) {
    starts[d] += f.attrs.ints("starts")[d] * strides[d];
    strides[d] *= f.attrs.ints("strides")[d];
    const int64_t n = f.type.shape[d];
    if (n == 0) starts[d] = 0;
    limits.push_back(n == 0 ? 0 : starts[d] + (n - 1) * strides[d] + 1);
  }
  return slice(source, starts, limits, strides);
}

View slice_view(const Type& in, const Type& out, const Attrs& attrs) {
  View view{0, dense_strides(in.shape)};
  for (size_t d = 0; d < view.strides.size(); ++d) {
    view.offset += attrs.ints("starts")[d] * view.strides[d];
    view.strides[d] *= attrs.ints("strides")[d];
  }
  if (count(out.shape) == 0) view.offset = 0;
  return view;
}

// ---- reverse

std::vector<Type> reverse_type(Types in, const Attrs& attrs) {
  expect_operands("reverse", in, 1);
  const Dims& axes = attrs.ints("axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    expect_axis("reverse", axes[i], in[0].shape);
    if (std::count(axes.begin(), axes.end(), axes[i]) > 1)
      throw_error("reverse: axis {} appears twice in {}; name each axis once", axes[i], to_string(axes));
  }
  return {in[0]};
}

Rule reverse_rule(Types in, const Attrs& attrs) {
  Rule rule = pointwise_rule(in, attrs);
  for (int64_t d : attrs.ints("axes")) rule.unsharded += rule.in[0][static_cast<size_t>(d)];
  return rule;
}

Grads reverse_vjp(const Vjp& v) { return {reverse(v.ct(), v.attrs.ints("axes"))}; }

Value reverse_fold(const Fold& f) {
  const Dims& axes = f.attrs.ints("axes");
  auto still = [&](int64_t d) { return f.type.shape[static_cast<size_t>(d)] <= 1; };
  if (std::all_of(axes.begin(), axes.end(), still)) return f.in[0];
  if (Value v = fold_full(f)) return v;
  Attrs inner;
  const Value source = operand_of(f.builder, f.in[0], reverse_op, inner);
  if (!source) return {};
  Dims once;
  for (int64_t d = 0; d < source.rank(); ++d)
    if (contains(axes, d) != contains(inner.ints("axes"), d)) once.push_back(d);
  return once.empty() ? source : reverse(source, once);
}

View reverse_view(const Type& in, const Type& out, const Attrs& attrs) {
  View view{0, dense_strides(in.shape)};
  if (count(out.shape) == 0) return view;
  for (int64_t axis : attrs.ints("axes")) {
    const auto d = static_cast<size_t>(axis);
    view.offset += (in.shape[d] - 1) * view.strides[d];
    view.strides[d] = -view.strides[d];
  }
  return view;
}

}  // namespace

constinit const Op broadcast_op = {.name = "broadcast",
                                   .linear = Linear::one,
                                   .rule = broadcast_rule,
                                   .type = broadcast_type,
                                   .vjp = broadcast_vjp,
                                   .dim_attrs = {{"shape", DimAttr::extents}, {"dims", DimAttr::mapping}},
                                   .local = with_local_shape,
                                   .fold = broadcast_fold,
                                   .view = broadcast_view,
                                   .cpu = view_kernel<broadcast_view>};
constinit const Op reshape_op = {.name = "reshape",
                                 .linear = Linear::one,
                                 .rule = reshape_rule,
                                 .type = reshape_type,
                                 .vjp = reshape_vjp,
                                 .dim_attrs = {{"shape", DimAttr::extents}},
                                 .local = with_local_shape,
                                 .fold = reshape_fold,
                                 .view = dense_result_view,
                                 .alias = same_memory,
                                 .cpu = view_kernel<dense_result_view>};
constinit const Op transpose_op = {.name = "transpose",
                                   .linear = Linear::one,
                                   .rule = transpose_rule,
                                   .type = transpose_type,
                                   .vjp = transpose_vjp,
                                   .dim_attrs = {{"permutation", DimAttr::mapping}},
                                   .fold = transpose_fold,
                                   .view = transpose_view,
                                   .cpu = view_kernel<transpose_view>};
constinit const Op slice_op = {
    .name = "slice",
    .linear = Linear::one,
    .rule = slice_rule,
    .type = slice_type,
    .vjp = slice_vjp,
    .dim_attrs = {{"starts", DimAttr::offsets}, {"limits", DimAttr::extents}, {"strides", DimAttr::strides}},
    .local = slice_local,
    .fold = slice_fold,
    .view = slice_view,
    .cpu = view_kernel<slice_view>};
constinit const Op reverse_op = {.name = "reverse",
                                 .linear = Linear::one,
                                 .rule = reverse_rule,
                                 .type = reverse_type,
                                 .vjp = reverse_vjp,
                                 .dim_attrs = {{"axes", DimAttr::dims}},
                                 .fold = reverse_fold,
                                 .view = reverse_view,
                                 .cpu = view_kernel<reverse_view>};
constinit const Op stop_gradient_op = {.name = "stop_gradient",
                                       .linear = Linear::one,
                                       .rule = pointwise_rule,
                                       .view = dense_result_view,
                                       .alias = same_memory,
                                       .cpu = view_kernel<dense_result_view>};

Value broadcast(Value x, Shape out, std::vector<int64_t> dims) {
  return emit(broadcast_op, {x}, {{"shape", std::move(out)}, {"dims", std::move(dims)}});
}

Value reshape(Value x, Shape shape) { return emit(reshape_op, {x}, {{"shape", std::move(shape)}}); }

Value transpose(Value x, std::vector<int64_t> permutation) {
  return emit(transpose_op, {x}, {{"permutation", std::move(permutation)}});
}

Value slice(Value x, std::vector<int64_t> starts, std::vector<int64_t> limits, std::vector<int64_t> strides) {
  return emit(slice_op, {x},
              {{"starts", std::move(starts)}, {"limits", std::move(limits)}, {"strides", std::move(strides)}});
}

Value reverse(Value x, std::vector<int64_t> axes) {
  std::sort(axes.begin(), axes.end());
  return emit(reverse_op, {x}, {{"axes", std::move(axes)}});
}

Value stop_gradient(Value x) { return emit(stop_gradient_op, {x}); }

}  // namespace lockstep
