#include <algorithm>

#include "array/apply.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/math.h"
#include "lockstep/norm.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
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

Array group_norm(const Operand& x, int64_t groups, const Operand& scale, const Operand& bias, double epsilon) {
  if (x.rank() < 2) throw_error("group_norm: x is {}; it must be [n, ..., channels]", to_string(x.type()));
  const int64_t n = x.shape(0), channels = x.shape(-1);
  if (groups < 1 || channels % groups != 0)
    throw_error(
        "group_norm: {} channels do not divide into {} groups; the number of groups must divide that of channels",
        channels, groups);
  if (scale.shape() != Shape{channels} || bias.shape() != Shape{channels})
    throw_error("group_norm: x is {}, but scale is {} and bias {}; both must be [{}]", to_string(x.shape()),
                to_string(scale.shape()), to_string(bias.shape()), channels);
  if (!(epsilon >= 0)) throw_error("group_norm: the epsilon is {}; it must not be negative", epsilon);
  const DType wide = x.dtype() == f64 ? f64 : f32, dtype = is_floating(x.dtype()) ? x.dtype() : f32;
  const int64_t places = x.size() / std::max<int64_t>(n * channels, 1);
  const Array parts = reshape(astype(x, wide), {n, places, groups, channels / groups});
  // The variance of the centered values, because a difference of two large means would cancel.
  const Array centered = parts - mean(parts, {1, 3}, {.keepdims = true});
  const Array normed = centered * rsqrt(mean(square(centered), {1, 3}, {.keepdims = true}) + epsilon);
  return astype(reshape(normed, x.shape()) * astype(scale, wide) + astype(bias, wide), dtype);
}

Array rotary_embedding(const Operand& x, const Operand& positions, double base) {
  if (!is_integer(positions.dtype()))
    throw_error("rotary_embedding: the positions are {}; they must be integers", to_string(positions.type()));
  return apply1("rotary_embedding", {x, positions},
                [&](Builder&, const Values& v) { return rotary(to_floating(v[0]), convert(v[1], i32), base); });
}

}  // namespace lockstep
