#include "lockstep/initializers.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lockstep/math.h"
#include "lockstep/random.h"

namespace lockstep::initializers {
namespace {

// 16-bit floats have too few bits to sample in; they get rounded f32 samples.
DType sampling_type(DType dtype) { return dtype == bf16 || dtype == f16 ? f32 : dtype; }

Array normal_of(const Array& key, const Shape& shape, double sd, DType dtype) {
  return astype(random::normal(key, shape, sampling_type(dtype)) * sd, dtype);
}

// A uniform distribution from -a to a has the standard deviation a / sqrt(3).
Array uniform_of(const Array& key, const Shape& shape, double sd, DType dtype) {
  const double a = sd * std::sqrt(3.0);
  return astype(random::uniform(key, shape, -a, a, sampling_type(dtype)), dtype);
}

// sqrt(gain / fan), also for a weight without elements.
double standard_deviation(double gain, int64_t fan) {
  return std::sqrt(gain / static_cast<double>(std::max<int64_t>(fan, 1)));
}

double he(const Shape& shape) { return standard_deviation(2, fans(shape).in); }
double glorot(const Shape& shape) { return standard_deviation(2, fans(shape).in + fans(shape).out); }
double lecun(const Shape& shape) { return standard_deviation(1, fans(shape).in); }

}  // namespace

Array he_normal(const Array& key, const Shape& shape, DType dtype) { return normal_of(key, shape, he(shape), dtype); }
Array he_uniform(const Array& key, const Shape& shape, DType dtype) { return uniform_of(key, shape, he(shape), dtype); }
Array glorot_normal(const Array& key, const Shape& shape, DType dtype) {
  return normal_of(key, shape, glorot(shape), dtype);
}
Array glorot_uniform(const Array& key, const Shape& shape, DType dtype) {
  return uniform_of(key, shape, glorot(shape), dtype);
}
Array lecun_normal(const Array& key, const Shape& shape, DType dtype) {
  return normal_of(key, shape, lecun(shape), dtype);
}
Array lecun_uniform(const Array& key, const Shape& shape, DType dtype) {
  return uniform_of(key, shape, lecun(shape), dtype);
}

Array normal(const Array& key, const Shape& shape, double sd, DType dtype) {
  if (!(sd >= 0) || std::isinf(sd))
    throw_error("initializers::normal: the standard deviation is {}; it must be 0 or a positive number", sd);
  return normal_of(key, shape, sd, dtype);
}

Fans fans(const Shape& shape) {
  if (shape.size() < 2)
    throw_error(
        "initializers::fans: {} has {} dimensions; weights have inputs and outputs as the last two (biases are usually "
        "zeros)",
        to_string(shape), shape.size());
  const int64_t positions = count(Shape(shape.begin(), shape.end() - 2));
  return {positions * shape[shape.size() - 2], positions * shape.back()};
}

}  // namespace lockstep::initializers
