#include "lockstep/precision.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/names.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

void check(const Precision& p) {
  if (!(p.factor > 1) || std::isinf(p.factor))
    throw_error("loss scaling: the factor is {}; it must be greater than 1", p.factor);
  if (!(p.initial_scale >= 1 && p.initial_scale <= p.largest_scale) || std::isinf(p.largest_scale))
    throw_error("loss scaling: initial_scale is {} and largest_scale {}; give an initial scale from 1 to the largest",
                p.initial_scale, p.largest_scale);
  if (p.growth_interval < 1 || p.growth_interval > std::numeric_limits<int32_t>::max())
    throw_error("loss scaling: growth_interval is {}; give a number of steps from 1 to 2^31 - 1", p.growth_interval);
}

}  // namespace

Precision precision_of(std::string_view name) {
  if (name == "float32" || name == "f32" || name == "fp32") return {};
  if (name == "bfloat16" || name == "bf16") return {.compute = bf16};
  if (name == "float16" || name == "f16" || name == "fp16") return {.compute = f16, .loss_scaling = true};
  if (name == "float8" || name == "f8" || name == "fp8") return {.compute = bf16, .float8 = true};
  throw_unknown_name("precision", name, {"float32", "bfloat16", "float16", "float8"});
}

std::string to_string(const Precision& precision) {
  if (precision.float8) return "float8";
  switch (precision.compute) {
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    case DType::f64:
      return "float64";
    default:
      return "float32";
  }
}

LossScale create_loss_scale(const Precision& precision) {
  if (!precision.loss_scaling) return {};
  check(precision);
  return {.scale = {full({}, Array(precision.initial_scale), f32)}, .finite_steps = {zeros({}, i32)}};
}

Array scaled(const LossScale& state, const Array& loss) { return state.scale.empty() ? loss : loss * state.scale[0]; }

std::vector<Array> unscaled(const LossScale& state, const std::vector<Array>& grads) {
  const Array inverse = state.scale.empty() ? Array() : 1.0 / state.scale[0];
  std::vector<Array> out;
  for (const Array& g : grads) {
    const Array wide = g.dtype() == f64 ? g : astype(g, f32);
    out.push_back(inverse.defined() ? wide * inverse : wide);
  }
  return out;
}

LossScale adjusted(const Precision& precision, const LossScale& state, const Array& finite) {
  if (state.scale.empty()) return {};
  check(precision);
  const Array &scale = state.scale[0], steps = state.finite_steps[0] + 1;
  const Array grows = steps >= precision.growth_interval;
  const Array larger = where(grows, minimum(scale * precision.factor, precision.largest_scale), scale);
  return {.scale = {where(finite, larger, maximum(scale * (1 / precision.factor), 1.0))},
          .finite_steps = {where(logical_and(finite, logical_not(grows)), steps, 0)}};
}

Array all_finite(const std::vector<Array>& leaves) {
  Array finite = ones({}, boolean);
  for (const Array& leaf : leaves) finite = logical_and(finite, all(isfinite(leaf)));
  return finite;
}

std::vector<Array> cast_floating(const std::vector<Array>& leaves, DType dtype) {
  if (!is_floating(dtype)) throw_error("cast_floating: {} is not a floating-point type; choose one", name(dtype));
  std::vector<Array> out;
  for (const Array& leaf : leaves) out.push_back(is_floating(leaf.dtype()) ? astype(leaf, dtype) : leaf);
  return out;
}

}  // namespace lockstep
