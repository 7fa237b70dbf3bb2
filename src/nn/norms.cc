#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/math.h"
#include "lockstep/nn.h"
#include "lockstep/norm.h"
#include "lockstep/reduce.h"

namespace lockstep::nn {
namespace {

void check_features(const char* what, int64_t features) {
  if (features < 1) throw_error("nn::{}: {} features; the number must be positive", what, features);
}

void check_epsilon(const char* what, double epsilon) {
  if (!(epsilon >= 0)) throw_error("nn::apply: the epsilon of a {} is {}; it must not be negative", what, epsilon);
}

// The type in which statistics of x are computed.
DType statistics_type(const Array& x) { return x.dtype() == f64 ? f64 : f32; }

Array in_type_of(const Array& x, const Array& y) { return is_floating(x.dtype()) ? astype(y, x.dtype()) : y; }

struct Moments {
  Array mean, variance;
};

// Mean and biased variance over all dimensions but the last.
Moments moments(const Array& x) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d + 1 < x.rank(); ++d) axes.push_back(d);
  const Array center = mean(x, axes);
  // The variance of the centered values, because a difference of two large means would cancel.
  return {center, mean(square(x - center), axes)};
}

void update_running_values(const BatchNorm& layer, const Moments& batch, int64_t n, const Mode& mode,
                           const BatchNormOptions& options) {
  const auto blend = [&](const State& running, const Array& value) {
    mode.update(running, running * (1 - options.momentum) + astype(value, running.dtype()) * options.momentum);
  };
  blend(layer.mean, batch.mean);
  blend(layer.variance, batch.variance * (static_cast<double>(n) / static_cast<double>(n - 1)));
}

}  // namespace

RmsNorm rms_norm(int64_t features, SourceLine at) {
  const detail::CallerLine line(at);
  check_features("rms_norm", features);
  return {ones({features})};
}

GroupNorm group_norm(int64_t features, int64_t groups, SourceLine at) {
  const lockstep::detail::CallerLine line(at);
  check_features("group_norm", features);
  if (groups < 1 || features % groups != 0)
    throw_error("nn::group_norm: {} features do not divide into {} groups; the second must divide the first", features,
                groups);
  return {ones({features}), zeros({features}), groups};
}

BatchNorm batch_norm(int64_t features, SourceLine at) {
  const detail::CallerLine line(at);
  check_features("batch_norm", features);
  return {ones({features}), zeros({features}), zeros({features}), ones({features})};
}

Array apply(const RmsNorm& layer, const Operand& x, double epsilon) {
  if (x.rank() == 0 || layer.scale.shape() != Shape{x.shape(-1)})
    throw_error("nn::apply: x is {}, but the RMS norm has scale {}; give x as [..., features]", to_string(x.shape()),
                to_string(layer.scale.shape()));
  check_epsilon("RMS norm", epsilon);
  return lockstep::rms_norm(x, layer.scale, epsilon);
}

Array apply(const GroupNorm& layer, const Operand& x, double epsilon) {
  if (x.rank() < 2 || layer.scale.shape() != Shape{x.shape(-1)} || layer.bias.shape() != layer.scale.shape())
    throw_error("nn::apply: x is {}, but the group norm has scale {} and bias {}; give x as [n, ..., features]",
                to_string(x.shape()), to_string(layer.scale.shape()), to_string(layer.bias.shape()));
  check_epsilon("group norm", epsilon);
  return lockstep::group_norm(x, layer.groups, layer.scale, layer.bias, epsilon);
}

Array apply(const BatchNorm& layer, const Operand& x, const Mode& mode, const BatchNormOptions& options) {
  const Shape features = x.rank() < 2 ? Shape{} : Shape{x.shape(-1)};
  for (const Array& each : {layer.scale, layer.bias, Array(layer.mean), Array(layer.variance)})
    if (x.rank() < 2 || each.shape() != features)
      throw_error(
          "nn::apply: x is {}, but the batch norm has {} as scale, bias, mean or variance; give x as [n, ..., "
          "features]",
          to_string(x.shape()), to_string(each.shape()));
  check_epsilon("batch norm", options.epsilon);
  if (!(options.momentum >= 0 && options.momentum <= 1))
    throw_error("nn::apply: the momentum of a batch norm is {}; it must be between 0 and 1", options.momentum);
  const Array wide = astype(x, statistics_type(x));
  const auto in_wide = [&](const Array& a) { return astype(a, wide.dtype()); };
  Moments used{in_wide(layer.mean), in_wide(layer.variance)};
  if (mode.training) {
    const int64_t n = x.size() / std::max<int64_t>(x.shape(-1), 1);
    if (n < 2)
      throw_error("nn::apply: a batch norm was called in training with x {}; it needs at least 2 values per feature",
                  to_string(x.shape()));
    used = moments(wide);
    update_running_values(layer, used, n, mode, options);
  }
  const Array factor = rsqrt(used.variance + options.epsilon) * in_wide(layer.scale);
  return in_type_of(x, (wide - used.mean) * factor + in_wide(layer.bias));
}

}  // namespace lockstep::nn
