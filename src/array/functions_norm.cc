#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/norm.h"
#include "ops/norm.h"
#include "ops/rotary.h"

namespace lockstep {

using detail::apply1;
using detail::convert;
using detail::to_floating;

Array layer_norm(const Operand& x, const Operand& scale, const Operand& bias, double epsilon) {
  return apply1("layer_norm", {x, scale, bias}, [&](Builder&, const Values& v) {
    Value scales = to_floating(v[1]), biases = to_floating(v[2]);
    // The row takes both in one type.
    if (scales.dtype() != biases.dtype()) {
      const DType wide = v[0].dtype() == f64 ? f64 : f32;
      scales = convert(scales, wide);
      biases = convert(biases, wide);
    }
    return layer_norm(to_floating(v[0]), scales, biases, epsilon)[0];
  });
}

Array rms_norm(const Operand& x, const Operand& scale, double epsilon) {
  return apply1("rms_norm", {x, scale},
                [&](Builder&, const Values& v) { return rms_norm(to_floating(v[0]), to_floating(v[1]), epsilon)[0]; });
}

Array rotary_embedding(const Operand& x, const Operand& positions, double base) {
  if (!is_integer(positions.dtype()))
    throw_error("rotary_embedding: the positions are {}; they must be integers", to_string(positions.type()));
  return apply1("rotary_embedding", {x, positions},
                [&](Builder&, const Values& v) { return rotary(to_floating(v[0]), convert(v[1], i32), base); });
}

}  // namespace lockstep
