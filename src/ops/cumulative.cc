// The rows of cumulative results along an axis: cumsum, cumprod, cummax, cummin, cumlogsumexp. Arrays are treated as
// [outer, n, inner], n along the axis.
#include "ops/cumulative.h"

#include <array>
#include <cmath>
#include <limits>

#include "base/dispatch.h"
#include "ops/complex.h"
#include "ops/cuda/kernels.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/lines.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/wrapped.h"

namespace lockstep {
namespace {

using Kind = CumulativeKind;

const Op& cumulative_row(Kind kind) {
  switch (kind) {
    case Kind::sum:
      return cumsum_op;
    case Kind::prod:
      return cumprod_op;
    case Kind::max:
      return cummax_op;
    case Kind::min:
      return cummin_op;
    case Kind::logsumexp:
      break;
  }
  return cumlogsumexp_op;
}

template <Kind kKind>
std::vector<Type> cumulative_type(Types in, const Attrs& attrs) {
  const std::string_view op = cumulative_row(kKind).name;
  expect_operands(op, in, 1);
  expect_axis(op, attrs.integer("axis"), in[0].shape);
  if (in[0].dtype == DType::boolean)
    throw_error("{}: {} has no arithmetic; cast it to i32 first", op, to_string(in[0]));
  if (kKind == Kind::logsumexp && !is_floating(in[0].dtype))
    throw_error("{}: {} is not floating; cast it to f32 first", op, to_string(in[0]));
  return {in[0]};
}

Rule cumulative_rule(Types in, const Attrs& attrs) {
  Rule rule = pointwise_rule(in, attrs);
  rule.unsharded = rule.in[0].substr(static_cast<size_t>(attrs.integer("axis")), 1);
  return rule;
}

Value cumulative_fold(const Fold& f) {
  return f.type.shape[static_cast<size_t>(f.attrs.integer("axis"))] <= 1 ? f.in[0] : Value();
}

// ---- gradients

// x moved by `by` positions towards the end of the axis (the start, if negative); zeros move in.
Value moved_along(Value x, int64_t axis, int64_t by) {
  Dims lo(x.shape().size(), 0), hi = lo, interior = lo;
  lo[static_cast<size_t>(axis)] = by;
  hi[static_cast<size_t>(axis)] = -by;
  return pad(x, full(x.builder(), {x.dtype(), {}}, 0), lo, hi, interior);
}

// s[i] = b[i] + a[i] * s[i + 1] along the axis, from the end (s[n] = 0), by doubling: exact for a = 0, and no division.
Value linear_recurrence(Value a, Value b, int64_t axis) {
  const int64_t n = a.shape()[static_cast<size_t>(axis)];
  for (int64_t step = 1; step < n; step *= 2) {
    b = b + a * moved_along(b, axis, -step);
    if (2 * step < n) a = a * moved_along(a, axis, -step);
  }
  return b;
}

Grads cumsum_vjp(const Vjp& v) { return {cumsum(v.ct(), v.attrs.integer("axis"), !v.attrs.get<bool>("reverse"))}; }

// The gradient of element i is the product of those before it times s[i] = ct[i] + x[i + 1] * s[i + 1].
Grads cumprod_vjp(const Vjp& v) {
  const int64_t axis = v.attrs.integer("axis");
  const bool backwards = v.attrs.get<bool>("reverse");
  const auto turned = [&](Value x) { return backwards ? reverse(x, {axis}) : x; };
  const Value x = turned(v.in[0]);
  const Value place = index_iota(x.builder(), x.shape(), axis), first = eq(place, zeros_like(place));
  const Value before = select(first, ones_like(x), moved_along(turned(v.y()), axis, 1));
  return {turned(before * linear_recurrence(moved_along(x, axis, -1), turned(v.ct()), axis))};
}

// The gradient goes to the element that first attained the extreme.
Grads cumulative_extreme_vjp(const Vjp& v) {
  const int64_t axis = v.attrs.integer("axis"), last = v.in[0].rank() - 1;
  const bool backwards = v.attrs.get<bool>("reverse");
  const Value y = v.y(), place = index_iota(y.builder(), y.shape(), axis);
  const int64_t n = y.shape()[static_cast<size_t>(axis)];
  const Value start = full(y.builder(), place.type(), backwards ? n - 1 : 0);
  const Value changed = bit_or(ne(y, moved_along(y, axis, backwards ? -1 : 1)), eq(place, start));
  const Value from = backwards ? cummin(select(changed, place, start), axis, true)
                               : cummax(select(changed, place, start), axis, false);
  const Dims order = move_dim(y.rank(), axis, last);
  const Value ct = transpose(v.ct(), order);
  return {transpose(scatter_add(zeros_like(ct), transpose(from, order), ct, last, last), inverse(order))};
}

// The gradient of element i is exp(x[i] - y[i]) * s[i], s[i] = ct[i] + exp(y[i] - y[i + 1]) * s[i + 1]: no exponential
// exceeds 1.
Grads cumlogsumexp_vjp(const Vjp& v) {
  const int64_t axis = v.attrs.integer("axis");
  const bool backwards = v.attrs.get<bool>("reverse");
  const auto turned = [&](Value x) { return backwards ? reverse(x, {axis}) : x; };
  // The difference of equal infinities counts as 0.
  const auto ratio = [](Value a, Value b) { return exp(select(eq(a, b), zeros_like(a), a - b)); };
  const Value x = turned(v.in[0]), y = turned(v.y());
  const Value decay = ratio(y, moved_along(y, axis, -1));  // the last one is not used
  const Value place = index_iota(y.builder(), y.shape(), axis);
  const Value inner = lt(place, full(y.builder(), place.type(), y.shape()[static_cast<size_t>(axis)] - 1));
  const Value s = linear_recurrence(select(inner, decay, zeros_like(decay)), turned(v.ct()), axis);
  return {turned(ratio(x, y) * s)};
}

// ---- the CPU kernel

// In which type results are combined: floats in double; integers wrap.
template <class T>
using Combined = std::conditional_t<std::is_integral_v<T>, T, double>;

template <Kind kKind, class C>
constexpr C start_of_line() {
  using Limits = std::numeric_limits<C>;
  switch (kKind) {
    case Kind::sum:
      return 0;
    case Kind::prod:
      return 1;
    case Kind::min:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  }
}

template <Kind kKind, class C>
C combined(C a, C b) {
  switch (kKind) {
    case Kind::sum:
      return wrapped_sum(a, b);
    case Kind::prod:
      return wrapped_product(a, b);
    case Kind::max:
      return a > b || a != a ? a : b;
    case Kind::min:
      return a < b || a != a ? a : b;
    case Kind::logsumexp:
      break;
  }
  if constexpr (std::is_floating_point_v<C>) {
    const C gap = a == b ? 0 : a - b;
    return (gap >= 0 ? a : b) + std::log1p(std::exp(-std::abs(gap)));
  } else {
    return a;  // the row takes no integers
  }
}

template <Kind kKind, class T>
void combine_lines(const Lines& lines, bool backwards, Pool& pool, const T* in, T* out) {
  using C = Combined<T>;
  for_columns(lines, pool, [&](int64_t o, int64_t first, int64_t columns) {
    std::array<C, kScanColumns> so_far;
    so_far.fill(start_of_line<kKind, C>());
    const int64_t base = o * lines.n * lines.inner + first;
    for (int64_t i = 0; i < lines.n; ++i) {
      const int64_t at = base + (backwards ? lines.n - 1 - i : i) * lines.inner;
      for (int64_t c = 0; c < columns; ++c) {
        C& result = so_far[static_cast<size_t>(c)];
        if constexpr (is_half<T>) {
          result = combined<kKind, C>(result, static_cast<float>(in[at + c]));
          out[at + c] = T(static_cast<float>(result));
        } else {
          result = combined<kKind, C>(result, static_cast<C>(in[at + c]));
          out[at + c] = static_cast<T>(result);
        }
      }
    }
  });
}

template <Kind kKind>
Kernel cumulative_cpu(const KernelSpec& spec) {
  return with_dtype(spec.in[0].dtype, [&]<class T>() -> Kernel {
    if constexpr (std::is_same_v<T, bool>) {
      LOCKSTEP_CHECK(false, "{} of bool", cumulative_row(kKind).name);
      return {};
    } else {
      return [lines = Lines(spec.in[0].shape, spec.attrs.integer("axis")), backwards = spec.attrs.get<bool>("reverse"),
              pool = &spec.pool](const void* const* in, void* const* out) {
        combine_lines<kKind>(lines, backwards, *pool, static_cast<const T*>(in[0]), static_cast<T*>(out[0]));
      };
    }
  });
}

bool over_operand(Types, Types, const Attrs&, size_t, size_t) { return true; }

template <Kind kKind>
constexpr Op make_cumulative_row(std::string_view name, Grads (*vjp)(const Vjp&)) {
  return {.name = name,
          .linear = kKind == Kind::sum ? Linear::one : Linear::no,
          .rule = cumulative_rule,
          .type = cumulative_type<kKind>,
          .vjp = vjp,
          .dim_attrs = {{"axis", DimAttr::dims}},
          .fold = cumulative_fold,
          .alias = over_operand,
          .cpu = cumulative_cpu<kKind>,
          .cuda = LOCKSTEP_CUDA(cumulative_cuda<kKind>)};
}

Value cumulative(const Op& op, Value x, int64_t axis, bool reverse) {
  return emit(op, {x}, {{"axis", axis}, {"reverse", reverse}});
}

}  // namespace

constinit const Op cumsum_op = make_cumulative_row<Kind::sum>("cumsum", cumsum_vjp);
constinit const Op cumprod_op = make_cumulative_row<Kind::prod>("cumprod", cumprod_vjp);
constinit const Op cummax_op = make_cumulative_row<Kind::max>("cummax", cumulative_extreme_vjp);
constinit const Op cummin_op = make_cumulative_row<Kind::min>("cummin", cumulative_extreme_vjp);
constinit const Op cumlogsumexp_op = make_cumulative_row<Kind::logsumexp>("cumlogsumexp", cumlogsumexp_vjp);

Value cumsum(Value x, int64_t axis, bool reverse) {
  if (is_complex(x.dtype())) return by_parts(x, [&](Value part) { return cumsum(part, axis, reverse); });
  return cumulative(cumsum_op, x, axis, reverse);
}
Value cumprod(Value x, int64_t axis, bool reverse) { return cumulative(cumprod_op, x, axis, reverse); }
Value cummax(Value x, int64_t axis, bool reverse) { return cumulative(cummax_op, x, axis, reverse); }
Value cummin(Value x, int64_t axis, bool reverse) { return cumulative(cummin_op, x, axis, reverse); }
Value cumlogsumexp(Value x, int64_t axis, bool reverse) { return cumulative(cumlogsumexp_op, x, axis, reverse); }

}  // namespace lockstep
