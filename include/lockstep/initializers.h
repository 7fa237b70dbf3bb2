// Initializers of weights. The last dimension of a weight is its outputs, the one before it the inputs, and all others
// the positions of a filter: [5, 5, 32, 64] has fan_in 800 and fan_out 1600. Normal distributions are not truncated
// (JAX truncates them at 2 standard deviations). Safe from any thread.
#pragma once

#include "lockstep/array.h"

namespace lockstep::initializers {

// Standard deviation sqrt(2 / fan_in), for relu.
Array he_normal(const Array& key, const Shape& shape, DType dtype = f32);
Array he_uniform(const Array& key, const Shape& shape, DType dtype = f32);
// Standard deviation sqrt(2 / (fan_in + fan_out)), for tanh.
Array glorot_normal(const Array& key, const Shape& shape, DType dtype = f32);
Array glorot_uniform(const Array& key, const Shape& shape, DType dtype = f32);
// Standard deviation sqrt(1 / fan_in).
Array lecun_normal(const Array& key, const Shape& shape, DType dtype = f32);
Array lecun_uniform(const Array& key, const Shape& shape, DType dtype = f32);
Array normal(const Array& key, const Shape& shape, double sd = 0.01, DType dtype = f32);

struct Fans {
  int64_t in = 0, out = 0;
};
// Throws Error for a shape of fewer than two dimensions.
Fans fans(const Shape&);

}  // namespace lockstep::initializers
