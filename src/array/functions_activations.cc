#include "array/promote.h"
#include "base/check.h"
#include "lockstep/activations.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "ops/dims.h"

namespace lockstep {
namespace {

Array as_floats(const Array& x) { return astype(x, detail::floating_of(x.dtype())); }

// if_positive where x > 0. The other function sees 0 there, so that it does not overflow.
template <class Positive, class Negative>
Array by_sign(const Array& x, Positive&& if_positive, Negative&& if_negative) {
  return where(x > 0, if_positive(x), if_negative(where(x > 0, 0, x)));
}

Array same(const Array& x) { return x; }

}  // namespace

Array relu6(const Operand& x) { return minimum(maximum(as_floats(x), 0), 6); }

Array leaky_relu(const Operand& x, double slope) {
  const Array y = as_floats(x);
  return where(y >= 0, y, slope * y);
}

Array elu(const Operand& x, double alpha) {
  return by_sign(as_floats(x), same, [&](const Array& y) { return alpha * expm1(y); });
}

Array celu(const Operand& x, double alpha) {
  return by_sign(as_floats(x), same, [&](const Array& y) { return alpha * expm1(y / alpha); });
}

Array selu(const Operand& x) { return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717); }

Array hard_tanh(const Operand& x) {
  const Array y = as_floats(x);
  return where(y > 1, 1, where(y < -1, -1, y));
}

Array hard_sigmoid(const Operand& x) { return relu6(as_floats(x) + 3) / 6; }
Array hard_silu(const Operand& x) { return as_floats(x) * hard_sigmoid(x); }
Array soft_sign(const Operand& x) { return as_floats(x) / (abs(as_floats(x)) + 1); }
Array squareplus(const Operand& x, double b) { return 0.5 * (as_floats(x) + sqrt(square(as_floats(x)) + b)); }
Array mish(const Operand& x) { return as_floats(x) * tanh(softplus(x)); }

Array sparse_plus(const Operand& x) {
  const Array y = as_floats(x);
  return where(y <= -1, 0, where(y >= 1, y, square(y + 1) / 4));
}

Array sparse_sigmoid(const Operand& x) { return 0.5 * clip(as_floats(x) + 1, 0, 2); }

Array glu(const Operand& x, int64_t axis) {
  const int64_t at = detail::axis_of("glu", axis, x.shape());
  if (x.shape(at) % 2 != 0)
    throw_error("glu: axis {} of {} is odd; it must divide into two halves", axis, to_string(x.type()));
  const std::vector<Array> halves = split(as_floats(x), 2, at);
  return halves[0] * sigmoid(halves[1]);
}

Array standardize(const Operand& x, const Axes& axes, double epsilon) {
  const Array y = as_floats(x), center = mean(y, axes, {.keepdims = true});
  const Array spread = mean(square(y), axes, {.keepdims = true}) - square(center);
  return (y - center) * rsqrt(spread + epsilon);
}

}  // namespace lockstep
