// Initializers of weights, as in JAX. The last dimension of a weight is its outputs, the one before it the inputs, and
// all others the positions of a filter: [5, 5, 32, 64] has fan_in 800 and fan_out 1600. The normal forms of he, glorot
// and lecun are truncated at 2 standard deviations of the normal distribution, which is scaled so that the result has
// the given standard deviation. Safe from any thread.
#pragma once

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep::initializers {

// Standard deviation sqrt(2 / fan_in), for relu.
Array he_normal(const Operand& key, const Shape& shape, DType dtype = f32);
Array he_uniform(const Operand& key, const Shape& shape, DType dtype = f32);
// Standard deviation sqrt(2 / (fan_in + fan_out)), for tanh.
Array glorot_normal(const Operand& key, const Shape& shape, DType dtype = f32);
Array glorot_uniform(const Operand& key, const Shape& shape, DType dtype = f32);
// Standard deviation sqrt(1 / fan_in).
Array lecun_normal(const Operand& key, const Shape& shape, DType dtype = f32);
Array lecun_uniform(const Operand& key, const Shape& shape, DType dtype = f32);
Array normal(const Operand& key, const Shape& shape, double sd = 0.01, DType dtype = f32);

Array uniform(const Operand& key, const Shape& shape, double scale = 0.01, DType dtype = f32);  // in [0, scale)
// Normal with this standard deviation, truncated at `lower` and `upper` standard deviations.
Array truncated_normal(const Operand& key, const Shape& shape, double sd = 0.01, DType dtype = f32, double lower = -2,
                       double upper = 2);

enum class FanMode : uint8_t { in, out, average, geometric_average };
enum class Distribution : uint8_t { truncated_normal, normal, uniform };
// Variance scale / fan: he, glorot and lecun are {2, in}, {1, average} and {1, in}.
struct VarianceScaling {
  double scale = 1;
  FanMode mode = FanMode::in;
  Distribution distribution = Distribution::truncated_normal;
  int64_t in_axis = -2, out_axis = -1;
};
Array variance_scaling(const Operand& key, const Shape& shape, const VarianceScaling& options, DType dtype = f32);

// Uniformly distributed matrices with orthonormal columns (or rows, where these are fewer), times `scale`; the columns
// lie along `column_axis`.
Array orthogonal(const Operand& key, const Shape& shape, double scale = 1, int64_t column_axis = -1, DType dtype = f32);
// Filters [..., in, out] of one to three dimensions, in <= out, that are orthogonal in the middle and 0 elsewhere.
Array delta_orthogonal(const Operand& key, const Shape& shape, double scale = 1, DType dtype = f32);

struct Fans {
  int64_t in = 0, out = 0;
};
// Throws Error for a shape of fewer than two dimensions.
Fans fans(const Shape&, SourceLine at = SourceLine::here());

}  // namespace lockstep::initializers
