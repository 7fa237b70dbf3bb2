// The rows of reductions.
#include "ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/dispatch.h"
#include "ops/complex.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/einsum.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce_cpu.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

const Op& row(ReduceKind r) {
  switch (r) {
    case ReduceKind::sum:
      return reduce_sum_op;
    case ReduceKind::prod:
      return reduce_prod_op;
    case ReduceKind::max:
      return reduce_max_op;
    case ReduceKind::min:
      return reduce_min_op;
    case ReduceKind::all:
      return reduce_and_op;
    case ReduceKind::any:
      break;
  }
  return reduce_or_op;
}

template <ReduceKind kR>
std::vector<Type> reduce_type(Types in, const Attrs& attrs) {
  const std::string_view op = row(kR).name;
  expect_operands(op, in, 1);
  const Dims& axes = attrs.ints("axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    expect_axis(op, axes[i], in[0].shape);
    if (i > 0 && axes[i] <= axes[i - 1])
      throw_error("{}: the axes {} do not increase; name each axis once, in order", op, to_string(axes));
  }
  const bool of_bool = in[0].dtype == DType::boolean;
  if ((kR == ReduceKind::all || kR == ReduceKind::any) && !of_bool)
    throw_error("{}: {} is not bool; compare it with something first", op, to_string(in[0]));
  if ((kR == ReduceKind::sum || kR == ReduceKind::prod) && of_bool)
    throw_error("{}: {} has no arithmetic; cast it to i32 first", op, to_string(in[0]));
  return {{in[0].dtype, without(in[0].shape, axes)}};
}

Rule reduce_rule(Types in, const Attrs& attrs) {
  const std::string term = Factors().next(in[0].rank());
  std::string kept;
  for (int64_t d = 0; d < in[0].rank(); ++d)
    if (!contains(attrs.ints("axes"), d)) kept += term[static_cast<size_t>(d)];
  return {{term}, {kept}, ""};
}

// There is no collective that multiplies, so reduced factors are not sharded.
Rule prod_rule(Types in, const Attrs& attrs) {
  Rule rule = reduce_rule(in, attrs);
  for (int64_t d : attrs.ints("axes")) rule.unsharded += rule.in[0][static_cast<size_t>(d)];
  return rule;
}

// ---- gradients

Dims kept_dims(int64_t rank, const Dims& axes) {
  Dims kept;
  for (int64_t d = 0; d < rank; ++d)
    if (!contains(axes, d)) kept.push_back(d);
  return kept;
}

// Broadcasts `y`, a reduction of `x` along `axes`, to the shape of `x`.
Value spread(Value y, Value x, const Dims& axes) { return broadcast(y, x.shape(), kept_dims(x.rank(), axes)); }

Grads sum_vjp(const Vjp& v) { return {spread(v.ct(), v.in[0], v.attrs.ints("axes"))}; }

// Elements equal to the result share the cotangent equally.
Grads extreme_vjp(const Vjp& v) {
  const Value x = v.in[0];
  const Dims& axes = v.attrs.ints("axes");
  if (count(x.shape()) == 0) return {zeros_like(x)};
  const Value hit = cast(eq(x, spread(v.y(), x, axes)), x.dtype());
  return {mul(hit, spread(div(v.ct(), reduce_sum(hit, axes)), x, axes))};
}

// Shifts the lines of `x` [rows, n] by `by` positions, filling with ones.
Value moved(Value x, int64_t by) { return pad(x, full(x.builder(), {x.dtype(), {}}, 1), {0, by}, {0, -by}, {0, 0}); }

// Products of all elements before (direction 1) or after (-1) each one along the lines of x [rows, n], by doubling.
Value products_beside(Value x, int64_t direction) {
  const int64_t n = x.shape()[1];
  Value y = moved(x, direction);
  for (int64_t by = 1; by < n; by *= 2) y = mul(y, moved(y, direction * by));
  return y;
}

// The product of all other elements: exact if some are zero, and differentiable.
Grads prod_vjp(const Vjp& v) {
  const Value x = v.in[0];
  const Dims& axes = v.attrs.ints("axes");
  const Dims kept = kept_dims(x.rank(), axes);
  Dims order = kept;
  order.insert(order.end(), axes.begin(), axes.end());
  int64_t n = 1;
  for (int64_t d : axes) n *= x.shape()[static_cast<size_t>(d)];
  if (n == 0) return {zeros_like(x)};
  const Value sorted = transpose(x, order);
  const Shape sorted_shape = sorted.shape();
  const Value lines = reshape(sorted, {count(sorted_shape) / n, n});
  const Value before = products_beside(lines, 1), after = products_beside(lines, -1);
  const Value others = mul(before, after);
  return {mul(spread(v.ct(), x, axes), transpose(reshape(others, sorted_shape), inverse(order)))};
}

// ---- folding

// The result for `n` elements equal to `value`, or nullopt if it would not be exact.
template <ReduceKind kR>
std::optional<Attr> reduce_full(DType dtype, const Attr& value, int64_t n) {
  if (n == 0) return std::nullopt;
  if constexpr (kR == ReduceKind::prod) {
    const bool stays =
        std::holds_alternative<double>(value) ? std::get<double>(value) == 1 : std::get<int64_t>(value) == 1;
    return n == 1 || stays ? std::optional(value) : std::nullopt;
  } else if constexpr (kR == ReduceKind::sum) {
    if (const double* x = std::get_if<double>(&value)) {
      const double times = static_cast<double>(n), sum = *x * times;
      const bool exact = std::isfinite(sum) && std::fma(*x, times, -sum) == 0 && round_to(dtype, sum) == sum;
      return exact ? std::optional<Attr>(sum) : std::nullopt;
    }
    const uint64_t sum = static_cast<uint64_t>(std::get<int64_t>(value)) * static_cast<uint64_t>(n);
    return with_dtype(dtype, [&]<class T>() -> std::optional<Attr> {
      if constexpr (std::is_integral_v<T>)
        return Attr(static_cast<int64_t>(static_cast<T>(sum)));
      else
        return std::nullopt;
    });
  } else {
    return value;
  }
}

// A sum over a batch letter of an einsum is one einsum that also contracts that letter. An example is the weight
// gradient summed over all devices.
Value sum_of_einsum(const Fold& f, const Eqn& eqn) {
  Rule rule = parse_rule(eqn.attrs.get<std::string>("spec"));
  std::string out;
  for (size_t d = 0; d < rule.out[0].size(); ++d) {
    const char letter = rule.out[0][d];
    if (!contains(f.attrs.ints("axes"), static_cast<int64_t>(d)))
      out += letter;
    else if (rule.in[0].find(letter) == std::string::npos || rule.in[1].find(letter) == std::string::npos)
      return {};
  }
  return einsum(rule.in[0] + "," + rule.in[1] + "->" + out, Value(&f.builder, eqn.in[0]), Value(&f.builder, eqn.in[1]));
}

template <ReduceKind kR>
Value reduce_fold(const Fold& f) {
  const Value x = f.in[0];
  const Dims& axes = f.attrs.ints("axes");
  int64_t n = 1;
  bool only_ones = true;
  for (int64_t d : axes) {
    n *= x.shape()[static_cast<size_t>(d)];
    only_ones &= x.shape()[static_cast<size_t>(d)] == 1;
  }
  if (axes.empty()) return x;
  if (only_ones) return reshape(x, f.type.shape);
  if (const Attr* value = full_value(x))
    if (const auto result = reduce_full<kR>(x.dtype(), *value, n)) return full_of(f.builder, f.type, *result);
  const Eqn* inner = f.builder.definition(x);
  if (kR == ReduceKind::sum && inner && inner->op == &einsum_op) return sum_of_einsum(f, *inner);
  if (!inner || inner->op != &row(kR)) return {};
  const Value source(&f.builder, inner->in[0]);
  Dims both = inner->attrs.ints("axes");
  const Dims kept = kept_dims(source.rank(), both);
  for (int64_t d : axes) both.push_back(kept[static_cast<size_t>(d)]);
  std::sort(both.begin(), both.end());
  return emit(row(kR), {source}, {{"axes", both}});
}

template <ReduceKind kR>
Kernel reduce_cpu(const KernelSpec& spec) {
  return reduce_kernel(kR, spec);
}

template <ReduceKind kR>
constexpr Op make_row(std::string_view name, Linear linear, PendingReduction pending, Grads (*vjp)(const Vjp&)) {
  return {.name = name,
          .linear = linear,
          .rule = pending == PendingReduction::none ? prod_rule : reduce_rule,
          .pending = pending,
          .type = reduce_type<kR>,
          .vjp = vjp,
          .dim_attrs = {{"axes", DimAttr::dims}},
          .fold = reduce_fold<kR>,
          .cpu = reduce_cpu<kR>,
          .cuda = LOCKSTEP_CUDA(reduce_cuda<kR>),
          .cuda_task = LOCKSTEP_CUDA(reduce_task(kR))};
}

// The product of complex numbers, by halving: the first half times the second.
Value complex_product(Value x, std::vector<int64_t> axes) {
  std::sort(axes.begin(), axes.end());
  const Dims kept = kept_dims(x.rank(), axes);
  const Shape out = without(x.shape(), axes);
  Dims order = kept;
  order.insert(order.end(), axes.begin(), axes.end());
  const int64_t rows = count(out);
  int64_t n = 1;
  for (const int64_t d : axes) n *= x.shape()[static_cast<size_t>(d)];
  if (n == 0) return full(x.builder(), {x.dtype(), out, x.type().varying}, 1);
  Value y = reshape(transpose(x, order), {rows, n});
  while (n > 1) {
    const int64_t half = n / 2;
    const Value product = mul(slice(y, {0, 0}, {rows, half}, {1, 1}), slice(y, {0, half}, {rows, 2 * half}, {1, 1}));
    y = n % 2 == 0 ? product : concatenate({product, slice(y, {0, n - 1}, {rows, n}, {1, 1})}, 1);
    n -= half;
  }
  return reshape(y, out);
}

Value reduce(const Op& op, Value x, std::vector<int64_t> axes) {
  std::sort(axes.begin(), axes.end());
  return emit(op, {x}, {{"axes", std::move(axes)}});
}

}  // namespace

constinit const Op reduce_sum_op = make_row<ReduceKind::sum>("reduce_sum", Linear::one, PendingReduction::sum, sum_vjp);
constinit const Op reduce_prod_op =
    make_row<ReduceKind::prod>("reduce_prod", Linear::no, PendingReduction::none, prod_vjp);
constinit const Op reduce_max_op =
    make_row<ReduceKind::max>("reduce_max", Linear::no, PendingReduction::max, extreme_vjp);
constinit const Op reduce_min_op =
    make_row<ReduceKind::min>("reduce_min", Linear::no, PendingReduction::min, extreme_vjp);
constinit const Op reduce_and_op = make_row<ReduceKind::all>("reduce_and", Linear::no, PendingReduction::min, nullptr);
constinit const Op reduce_or_op = make_row<ReduceKind::any>("reduce_or", Linear::no, PendingReduction::max, nullptr);

Value reduce_sum(Value x, std::vector<int64_t> axes) {
  if (is_complex(x.dtype())) return by_parts(x, [&](Value part) { return reduce_sum(part, axes); });
  return reduce(reduce_sum_op, x, std::move(axes));
}
Value reduce_prod(Value x, std::vector<int64_t> axes) {
  if (is_complex(x.dtype())) return complex_product(x, std::move(axes));
  return reduce(reduce_prod_op, x, std::move(axes));
}
Value reduce_max(Value x, std::vector<int64_t> axes) { return reduce(reduce_max_op, x, std::move(axes)); }
Value reduce_min(Value x, std::vector<int64_t> axes) { return reduce(reduce_min_op, x, std::move(axes)); }
Value reduce_and(Value x, std::vector<int64_t> axes) { return reduce(reduce_and_op, x, std::move(axes)); }
Value reduce_or(Value x, std::vector<int64_t> axes) { return reduce(reduce_or_op, x, std::move(axes)); }

}  // namespace lockstep
