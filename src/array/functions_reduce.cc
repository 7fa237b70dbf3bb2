#include <limits>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;
using detail::at_axis;
using detail::axes_of;
using detail::CallKey;
using detail::convert;
using detail::repeat_along;

// `key`: of the call, if it identifies f.
Array reduce(const char* what, const Array& x, const Axes& axes, bool keepdims,
             FunctionRef<Value(Value, const Dims&)> f, const CallKey& key = {}) {
  return apply1(
      what, {x},
      [&](Builder&, const Values& v) {
        const Dims over = axes_of(what, axes, v[0].shape());
        const Value y = f(v[0], over);
        return keepdims ? detail::keep_axes(y, v[0].shape(), over) : y;
      },
      {}, key);
}

using Reduction = Value (*)(Value, const Dims&);

// Same for a function without state.
Array reduce_by(const char* what, const Array& x, const Axes& axes, bool keepdims, Reduction f) {
  return reduce(what, x, axes, keepdims, f, CallKey(what, f, keepdims, axes.list));
}

// Converts to the type in which sums accumulate.
Value widened(Value x, DType of_bools) {
  if (x.dtype() == boolean) return cast(x, of_bools);
  const bool narrow = is_integer(x.dtype()) && size_of(x.dtype()) < 4;
  return narrow ? cast(x, is_signed(x.dtype()) ? i32 : u32) : x;
}

// Converts to the floating or complex type in which means are computed: at least f32.
Value accurate(Value x) { return convert(x, x.dtype() == f64 || is_complex(x.dtype()) ? x.dtype() : f32); }

// Converts y to the floating result type for an operand x. The variance of complex numbers is real.
Value narrowed(Value y, Value x) {
  const DType dtype = detail::floating_of(x.dtype());
  return convert(y, is_complex(y.dtype()) ? dtype : real_of(dtype));
}

int64_t element_count(Value x, const Dims& axes) {
  int64_t n = 1;
  for (int64_t axis : axes) n *= x.shape()[at_axis(axis)];
  return n;
}
double elements(Value x, const Dims& axes) { return static_cast<double>(element_count(x, axes)); }

void check_not_empty(const char* what, Value x, const Dims& axes) {
  for (int64_t axis : axes)
    if (x.shape()[at_axis(axis)] == 0)
      throw_error("{}: dimension {} of {} is empty; reduce over a nonempty dimension", what, axis,
                  to_string(x.shape()));
}

// x where it takes part in a reduction, elsewhere `otherwise`.
Array selected(const Array& x, const Array& mask, const Array& otherwise) {
  return mask.defined() ? where(mask, x, otherwise) : x;
}

void check_initial(const char* what, const ReduceOptions& options) {
  if (options.initial.defined() && options.initial.rank() != 0)
    throw_error("{}: the initial value is {}; it must be a scalar", what, to_string(options.initial.type()));
}

void check_no_initial(const char* what, const ReduceOptions& options) {
  if (options.initial.defined()) throw_error("{}: takes no initial value; leave it undefined", what);
}

void check_plain(const char* what, const ReduceOptions& options) {
  check_no_initial(what, options);
  if (options.where.defined()) throw_error("{}: takes no mask of elements; use where() on its operand", what);
}

// An extreme of the elements and of the initial value, which is needed if elements may be missing.
Array extreme(const char* what, const Array& x, const Axes& axes, const ReduceOptions& options,
              Value (*of)(Value, Dims), Value (*of_bools)(Value, Dims),
              Array (*of_two)(const Operand&, const Operand&)) {
  check_initial(what, options);
  const bool open = options.initial.defined();
  if (options.where.defined() && !open)
    throw_error("{}: a mask of elements without an initial value; pass both, for example {{.where = m, .initial = 0}}",
                what);
  const Array y = reduce(
      what, selected(x, options.where, options.initial), axes, options.keepdims,
      [&](Value v, const Dims& over) {
        if (!open) check_not_empty(what, v, over);
        return v.dtype() == boolean ? of_bools(v, over) : of(v, over);
      },
      CallKey(what, of, of_bools, open, options.keepdims, axes.list));
  return open ? astype(of_two(y, options.initial), y.dtype()) : y;
}

// The number of elements that take part, with the axes kept.
Array selected_count(const char* what, const Array& x, const Axes& axes, const Array& mask, bool keepdims) {
  return reduce(what, broadcast_to(where(mask, 1.0, 0.0), x.shape()), axes, keepdims,
                [](Value v, const Dims& over) { return reduce_sum(accurate(v), over); });
}

Value average(Value x, const Dims& axes) { return reduce_sum(x, axes) / elements(x, axes); }

// |x|^2.
Value square_of_size(Value x) {
  const Value re = real(x), im = imag(x);
  return re * re + im * im;
}

Value variance(Value x, const Dims& axes, int64_t ddof) {
  const Value wide = accurate(x);
  const Value centered = wide - repeat_along(average(wide, axes), x.shape(), axes);
  const Value square = is_complex(wide.dtype()) ? square_of_size(centered) : centered * centered;
  return reduce_sum(square, axes) / (elements(x, axes) - static_cast<double>(ddof));
}

// The maximum along the axes, without gradient; 0 where it is not finite, to avoid inf - inf.
Value stabilizer(Value x, const Dims& axes) {
  const Value m = stop_gradient(reduce_max(x, axes));
  return select(is_finite(m), m, zeros_like(m));
}

// x less its maximum. An infinite maximum makes NaN of itself, which spreads to all that is divided by the sum.
Value shifted(Value x, const Dims& axes) {
  return x - repeat_along(stop_gradient(reduce_max(x, axes)), x.shape(), axes);
}

Array normalized(const char* what, const Array& x, const Axes& axes, Value (*f)(Value shifted_x, const Dims& axes)) {
  return apply1(
      what, {x},
      [&](Builder&, const Values& v) {
        const Dims over = axes_of(what, axes, v[0].shape());
        return narrowed(f(shifted(accurate(v[0]), over), over), v[0]);
      },
      {}, CallKey(what, f, axes.list));
}

using Extreme = Value (*)(Value, int64_t);

Array extreme_index(const char* what, const Array& x, std::optional<int64_t> axis, bool keepdims, Extreme f) {
  const Axes over = axis ? Axes(*axis) : Axes();
  return reduce(what, x, over, keepdims, [&](Value v, const Dims& axes) {
    check_not_empty(what, v, axes);
    const Value numbers = detail::to_number(v);
    return axis ? f(numbers, axes[0]) : f(reshape(numbers, {count(v.shape())}), 0);
  });
}

Array cumulative(const char* what, const Array& x, int64_t axis, bool reverse, Value (*f)(Value, int64_t, bool)) {
  const int64_t along = detail::axis_of(what, axis, x.shape());
  return apply1(
      what, {x},
      [&](Builder&, const Values& v) {
        const DType of_bools = index_dtype(v[0].shape()[at_axis(along)]);  // their sums are counts
        return f(v[0].dtype() == boolean ? cast(v[0], of_bools) : v[0], along, reverse);
      },
      {}, CallKey(what, f, along, reverse));
}

}  // namespace

Array sum(const Operand& x, const Axes& axes, ReduceOptions options) {
  check_initial("sum", options);
  const Array y = reduce_by(
      "sum", selected(x, options.where, 0), axes, options.keepdims,
      [](Value v, const Dims& over) { return reduce_sum(widened(v, index_dtype(element_count(v, over))), over); });
  return options.initial.defined() ? y + astype(options.initial, y.dtype()) : y;
}

Array prod(const Operand& x, const Axes& axes, ReduceOptions options) {
  check_initial("prod", options);
  const Array y = reduce_by("prod", selected(x, options.where, 1), axes, options.keepdims,
                            [](Value v, const Dims& over) { return reduce_prod(widened(v, i32), over); });
  return options.initial.defined() ? y * astype(options.initial, y.dtype()) : y;
}

Array max(const Operand& x, const Axes& axes, ReduceOptions options) {
  return extreme("max", x, axes, options, reduce_max, reduce_or, maximum);
}

Array min(const Operand& x, const Axes& axes, ReduceOptions options) {
  return extreme("min", x, axes, options, reduce_min, reduce_and, minimum);
}

Array any(const Operand& x, const Axes& axes, ReduceOptions options) {
  check_no_initial("any", options);
  return reduce_by("any", selected(astype(x, boolean), options.where, false), axes, options.keepdims,
                   [](Value v, const Dims& over) { return reduce_or(convert(v, boolean), over); });
}

Array all(const Operand& x, const Axes& axes, ReduceOptions options) {
  check_no_initial("all", options);
  return reduce_by("all", selected(astype(x, boolean), options.where, true), axes, options.keepdims,
                   [](Value v, const Dims& over) { return reduce_and(convert(v, boolean), over); });
}

Array mean(const Operand& x, const Axes& axes, ReduceOptions options) {
  check_no_initial("mean", options);
  if (options.where.defined()) {
    const Array wide = astype(x, x.dtype() == f64 ? f64 : f32);
    const Array total = sum(wide, axes, {.keepdims = options.keepdims, .where = options.where});
    const Array n = selected_count("mean", x, axes, options.where, options.keepdims);
    return astype(total / astype(n, total.dtype()), detail::floating_of(x.dtype()));
  }
  return reduce_by("mean", x, axes, options.keepdims,
                   [](Value v, const Dims& over) { return narrowed(average(accurate(v), over), v); });
}

Array var(const Operand& x, const Axes& axes, VarianceOptions options) {
  if (options.where.defined()) {
    const Array wide = astype(x, x.dtype() == f64 ? f64 : f32);
    const Array centered = wide - mean(wide, axes, {.keepdims = true, .where = options.where});
    const Array total = sum(centered * centered, axes, {.keepdims = options.keepdims, .where = options.where});
    const Array n = selected_count("var", x, axes, options.where, options.keepdims) - options.ddof;
    return astype(total / astype(n, total.dtype()), detail::floating_of(x.dtype()));
  }
  return reduce("var", x, axes, options.keepdims,
                [&](Value v, const Dims& over) { return narrowed(variance(v, over, options.ddof), v); });
}

Array standard_deviation(const Operand& x, const Axes& axes, VarianceOptions options) {
  if (options.where.defined()) return sqrt(var(x, axes, options));
  return reduce("standard_deviation", x, axes, options.keepdims,
                [&](Value v, const Dims& over) { return narrowed(sqrt(variance(v, over, options.ddof)), v); });
}

Array argmax(const Operand& x, std::optional<int64_t> axis, ReduceOptions options) {
  check_plain("argmax", options);
  return extreme_index("argmax", x, axis, options.keepdims, argmax);
}

Array argmin(const Operand& x, std::optional<int64_t> axis, ReduceOptions options) {
  check_plain("argmin", options);
  return extreme_index("argmin", x, axis, options.keepdims, argmin);
}

Array cumsum(const Operand& x, int64_t axis, bool reverse) { return cumulative("cumsum", x, axis, reverse, cumsum); }
Array cumprod(const Operand& x, int64_t axis, bool reverse) { return cumulative("cumprod", x, axis, reverse, cumprod); }
Array cummax(const Operand& x, int64_t axis, bool reverse) { return cumulative("cummax", x, axis, reverse, cummax); }
Array cummin(const Operand& x, int64_t axis, bool reverse) { return cumulative("cummin", x, axis, reverse, cummin); }
Array cumlogsumexp(const Operand& x, int64_t axis, bool reverse) {
  return cumulative("cumlogsumexp", x, axis, reverse, [](Value v, int64_t along, bool back) {
    return cumlogsumexp(detail::to_floating(v), along, back);
  });
}
Array cumsum(const Operand& x) { return cumsum(ravel(x), 0); }
Array cumprod(const Operand& x) { return cumprod(ravel(x), 0); }

Array logsumexp(const Operand& x, const Axes& axes, LogsumexpOptions options) {
  const double least = -std::numeric_limits<double>::infinity();
  if (options.b.defined() || options.where.defined()) {
    const DType dtype = x.dtype() == f64 ? f64 : f32;
    // Elements with factor 0 do not count, whatever they are.
    const Array factor = options.b.defined() ? astype(options.b, dtype) : ones({}, dtype);
    const Array counts = options.where.defined() ? (factor != 0) & astype(options.where, boolean) : factor != 0;
    const Array wide = where(counts, astype(x, dtype), least);
    const Array highest = stop_gradient(max(wide, axes, {.keepdims = true, .initial = least}));
    const Array shift = where(isfinite(highest), highest, 0);
    const Array total = sum(where(counts, factor * exp(wide - shift), 0), axes, {.keepdims = options.keepdims});
    return astype(log(total) + reshape(shift, total.shape()), detail::floating_of(x.dtype()));
  }
  return reduce_by("logsumexp", x, axes, options.keepdims, [](Value v, const Dims& over) {
    const Value wide = accurate(v), m = stabilizer(wide, over);
    return narrowed(log(reduce_sum(exp(wide - repeat_along(m, v.shape(), over)), over)) + m, v);
  });
}

Array softmax(const Operand& x, const Axes& axes) {
  return normalized("softmax", x, axes, [](Value v, const Dims& over) {
    const Value e = exp(v);
    return e / repeat_along(reduce_sum(e, over), v.shape(), over);
  });
}

Array log_softmax(const Operand& x, const Axes& axes) {
  return normalized("log_softmax", x, axes, [](Value v, const Dims& over) {
    return v - repeat_along(log(reduce_sum(exp(v), over)), v.shape(), over);
  });
}

}  // namespace lockstep
