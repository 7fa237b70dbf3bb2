#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/reduce.h"
#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

using detail::apply1;
using detail::at_axis;
using detail::axes_of;
using detail::convert;
using detail::repeat_along;

Array reduce(const char* what, const Array& x, const Axes& axes, bool keepdims,
             FunctionRef<Value(Value, const Dims&)> f) {
  return apply1(what, {x}, [&](Builder&, const Values& v) {
    const Dims over = axes_of(what, axes, v[0].shape());
    const Value y = f(v[0], over);
    return keepdims ? detail::keep_axes(y, v[0].shape(), over) : y;
  });
}

// Converts to the type in which sums accumulate.
Value widened(Value x) {
  const bool narrow = x.dtype() == boolean || (is_integer(x.dtype()) && size_of(x.dtype()) < 4);
  return narrow ? cast(x, i32) : x;
}

// Converts to the floating or complex type in which means are computed: at least f32.
Value accurate(Value x) { return convert(x, x.dtype() == f64 || is_complex(x.dtype()) ? x.dtype() : f32); }

// Converts y to the floating result type for an operand x. The variance of complex numbers is real.
Value narrowed(Value y, Value x) {
  const DType dtype = detail::floating_of(x.dtype());
  return convert(y, is_complex(y.dtype()) ? dtype : real_of(dtype));
}

double elements(Value x, const Dims& axes) {
  double n = 1;
  for (int64_t axis : axes) n *= static_cast<double>(x.shape()[at_axis(axis)]);
  return n;
}

void check_not_empty(const char* what, Value x, const Dims& axes) {
  for (int64_t axis : axes)
    if (x.shape()[at_axis(axis)] == 0)
      throw_error("{}: dimension {} of {} is empty; reduce over a nonempty dimension", what, axis,
                  to_string(x.shape()));
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

Value shifted(Value x, const Dims& axes) { return x - repeat_along(stabilizer(x, axes), x.shape(), axes); }

Array normalized(const char* what, const Array& x, const Axes& axes, Value (*f)(Value shifted_x, const Dims& axes)) {
  return apply1(what, {x}, [&](Builder&, const Values& v) {
    const Dims over = axes_of(what, axes, v[0].shape());
    return narrowed(f(shifted(accurate(v[0]), over), over), v[0]);
  });
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

}  // namespace

Array sum(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("sum", x, axes, options.keepdims,
                [](Value v, const Dims& over) { return reduce_sum(widened(v), over); });
}

Array prod(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("prod", x, axes, options.keepdims,
                [](Value v, const Dims& over) { return reduce_prod(widened(v), over); });
}

Array max(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("max", x, axes, options.keepdims, [](Value v, const Dims& over) {
    check_not_empty("max", v, over);
    return v.dtype() == boolean ? reduce_or(v, over) : reduce_max(v, over);
  });
}

Array min(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("min", x, axes, options.keepdims, [](Value v, const Dims& over) {
    check_not_empty("min", v, over);
    return v.dtype() == boolean ? reduce_and(v, over) : reduce_min(v, over);
  });
}

Array any(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("any", x, axes, options.keepdims,
                [](Value v, const Dims& over) { return reduce_or(convert(v, boolean), over); });
}

Array all(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("all", x, axes, options.keepdims,
                [](Value v, const Dims& over) { return reduce_and(convert(v, boolean), over); });
}

Array mean(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("mean", x, axes, options.keepdims,
                [](Value v, const Dims& over) { return narrowed(average(accurate(v), over), v); });
}

Array var(const Array& x, const Axes& axes, VarianceOptions options) {
  return reduce("var", x, axes, options.keepdims,
                [&](Value v, const Dims& over) { return narrowed(variance(v, over, options.ddof), v); });
}

Array standard_deviation(const Array& x, const Axes& axes, VarianceOptions options) {
  return reduce("standard_deviation", x, axes, options.keepdims,
                [&](Value v, const Dims& over) { return narrowed(sqrt(variance(v, over, options.ddof)), v); });
}

Array argmax(const Array& x, std::optional<int64_t> axis, ReduceOptions options) {
  return extreme_index("argmax", x, axis, options.keepdims, argmax);
}

Array argmin(const Array& x, std::optional<int64_t> axis, ReduceOptions options) {
  return extreme_index("argmin", x, axis, options.keepdims, argmin);
}

Array cumsum(const Array& x, int64_t axis, bool reverse) {
  const int64_t along = detail::axis_of("cumsum", axis, x.shape());
  return apply1("cumsum", {x}, [&](Builder&, const Values& v) { return cumsum(widened(v[0]), along, reverse); });
}

Array logsumexp(const Array& x, const Axes& axes, ReduceOptions options) {
  return reduce("logsumexp", x, axes, options.keepdims, [](Value v, const Dims& over) {
    const Value wide = accurate(v), m = stabilizer(wide, over);
    return narrowed(log(reduce_sum(exp(wide - repeat_along(m, v.shape(), over)), over)) + m, v);
  });
}

Array softmax(const Array& x, const Axes& axes) {
  return normalized("softmax", x, axes, [](Value v, const Dims& over) {
    const Value e = exp(v);
    return e / repeat_along(reduce_sum(e, over), v.shape(), over);
  });
}

Array log_softmax(const Array& x, const Axes& axes) {
  return normalized("log_softmax", x, axes, [](Value v, const Dims& over) {
    return v - repeat_along(log(reduce_sum(exp(v), over)), v.shape(), over);
  });
}

}  // namespace lockstep
