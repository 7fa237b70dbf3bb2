#include "lockstep/initializers.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/distributions.h"
#include "lockstep/math.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"

namespace lockstep::initializers {
namespace {

// 16-bit floats have too few bits to sample in; they get rounded f32 samples.
DType sampling_type(DType dtype) { return dtype == bf16 || dtype == f16 ? f32 : dtype; }

// The standard deviation of a normal distribution truncated at 2 standard deviations.
constexpr double kTruncatedDeviation = .87962566103423978;

Array normal_of(const Array& key, const Shape& shape, double sd, DType dtype) {
  return astype(random::normal(key, shape, sampling_type(dtype)) * sd, dtype);
}

Array truncated_of(const Array& key, const Shape& shape, double sd, DType dtype, double lower = -2, double upper = 2) {
  return astype(random::truncated_normal(key, lower, upper, shape, sampling_type(dtype)) * sd, dtype);
}

void check_deviation(const char* what, double sd) {
  if (!(sd >= 0) || std::isinf(sd))
    throw_error("initializers::{}: the standard deviation is {}; it must be 0 or a positive number", what, sd);
}

int64_t dimension(const char* what, int64_t axis, const Shape& shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t counted = axis < 0 ? axis + rank : axis;
  if (counted < 0 || counted >= rank)
    throw_error("initializers::{}: axis {} is out of range for {}; valid axes: {} to {}", what, axis, to_string(shape),
                -rank, rank - 1);
  return counted;
}

double fan_of(const VarianceScaling& options, const Shape& shape) {
  if (shape.size() < 2) static_cast<void>(fans(shape));  // throws
  const auto extent = [&](int64_t axis) {
    return shape[static_cast<size_t>(dimension("variance_scaling", axis, shape))];
  };
  const int64_t in = extent(options.in_axis), out = extent(options.out_axis);
  const double positions = static_cast<double>(count(shape)) / std::max(1.0, static_cast<double>(in * out));
  const double fan_in = positions * static_cast<double>(in), fan_out = positions * static_cast<double>(out);
  switch (options.mode) {
    case FanMode::in:
      return fan_in;
    case FanMode::out:
      return fan_out;
    case FanMode::average:
      return (fan_in + fan_out) / 2;
    case FanMode::geometric_average:
      break;
  }
  return std::sqrt(fan_in * fan_out);
}

}  // namespace

Array he_normal(const Operand& key, const Shape& shape, DType dtype) {
  return variance_scaling(key, shape, {2, FanMode::in}, dtype);
}
Array he_uniform(const Operand& key, const Shape& shape, DType dtype) {
  return variance_scaling(key, shape, {2, FanMode::in, Distribution::uniform}, dtype);
}
Array glorot_normal(const Operand& key, const Shape& shape, DType dtype) {
  return variance_scaling(key, shape, {1, FanMode::average}, dtype);
}
Array glorot_uniform(const Operand& key, const Shape& shape, DType dtype) {
  return variance_scaling(key, shape, {1, FanMode::average, Distribution::uniform}, dtype);
}
Array lecun_normal(const Operand& key, const Shape& shape, DType dtype) {
  return variance_scaling(key, shape, {1, FanMode::in}, dtype);
}
Array lecun_uniform(const Operand& key, const Shape& shape, DType dtype) {
  return variance_scaling(key, shape, {1, FanMode::in, Distribution::uniform}, dtype);
}

Array variance_scaling(const Operand& key, const Shape& shape, const VarianceScaling& options, DType dtype) {
  // A weight without elements may have no inputs.
  const double sd = std::sqrt(options.scale / std::max(fan_of(options, shape), 1.0));
  check_deviation("variance_scaling", sd);
  switch (options.distribution) {
    case Distribution::truncated_normal:
      return truncated_of(key, shape, sd / kTruncatedDeviation, dtype);
    case Distribution::normal:
      return normal_of(key, shape, sd, dtype);
    case Distribution::uniform:
      break;
  }
  // A uniform distribution from -a to a has the standard deviation a / sqrt(3).
  return astype(random::uniform(key, shape, -1, 1, sampling_type(dtype)) * (sd * std::sqrt(3.0)), dtype);
}

Array uniform(const Operand& key, const Shape& shape, double scale, DType dtype) {
  return astype(random::uniform(key, shape, 0, 1, sampling_type(dtype)) * scale, dtype);
}

Array truncated_normal(const Operand& key, const Shape& shape, double sd, DType dtype, double lower, double upper) {
  check_deviation("truncated_normal", sd);
  return truncated_of(key, shape, sd, dtype, lower, upper);
}

Array orthogonal(const Operand& key, const Shape& shape, double scale, int64_t column_axis, DType dtype) {
  if (shape.size() < 2)
    throw_error("initializers::orthogonal: {} has {} dimensions; it needs at least 2", to_string(shape), shape.size());
  const int64_t axis = dimension("orthogonal", column_axis, shape), elements = count(shape);
  if (elements == 0) return zeros(shape, dtype);
  const int64_t columns = shape[static_cast<size_t>(axis)];
  const Array q = random::orthogonal(key, elements / columns, {}, sampling_type(dtype), columns);
  Shape moved = shape;
  moved.erase(moved.begin() + axis);
  moved.push_back(columns);
  return astype(moveaxis(reshape(q, moved), -1, axis) * scale, dtype);
}

Array delta_orthogonal(const Operand& key, const Shape& shape, double scale, DType dtype) {
  const size_t rank = shape.size();
  if (rank < 3 || rank > 5 || shape[rank - 2] > shape[rank - 1])
    throw_error("initializers::delta_orthogonal: {}; pass 3 to 5 dimensions with at most as many inputs as outputs",
                to_string(shape));
  const int64_t in = shape[rank - 2], out = shape[rank - 1];
  const Array square = orthogonal(key, {out, out}, scale, -1, dtype);
  // Zeros around the matrix in the middle.
  Shape middle(rank, 1);
  middle[rank - 2] = in;
  middle[rank - 1] = out;
  std::vector<std::pair<int64_t, int64_t>> widths(rank, {0, 0});
  for (size_t d = 0; d + 2 < rank; ++d) widths[d] = {(shape[d] - 1) / 2, shape[d] - 1 - (shape[d] - 1) / 2};
  return pad(reshape(slice(square, {0}, {in}), middle), widths);
}

Array normal(const Operand& key, const Shape& shape, double sd, DType dtype) {
  check_deviation("normal", sd);
  return normal_of(key, shape, sd, dtype);
}

Fans fans(const Shape& shape, SourceLine at) {
  const lockstep::detail::CallerLine line(at);
  if (shape.size() < 2)
    throw_error(
        "initializers::fans: {} has {} dimensions; weights have inputs and outputs as the last two (biases are usually "
        "zeros)",
        to_string(shape), shape.size());
  const int64_t positions = count(Shape(shape.begin(), shape.end() - 2));
  return {positions * shape[shape.size() - 2], positions * shape.back()};
}

}  // namespace lockstep::initializers
