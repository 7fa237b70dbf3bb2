// The weights of this library's layers and models: normal, not truncated. Safe from any thread.
#pragma once

#include "lockstep/initializers.h"

namespace lockstep {

// Standard deviation sqrt(2 / fan_in), sqrt(2 / (fan_in + fan_out)) and sqrt(1 / fan_in).
inline Array plain_he_normal(const Array& key, const Shape& shape, DType dtype = f32) {
  return initializers::variance_scaling(key, shape, {2, initializers::FanMode::in, initializers::Distribution::normal},
                                        dtype);
}
inline Array plain_glorot_normal(const Array& key, const Shape& shape, DType dtype = f32) {
  return initializers::variance_scaling(key, shape,
                                        {1, initializers::FanMode::average, initializers::Distribution::normal}, dtype);
}
inline Array plain_lecun_normal(const Array& key, const Shape& shape, DType dtype = f32) {
  return initializers::variance_scaling(key, shape, {1, initializers::FanMode::in, initializers::Distribution::normal},
                                        dtype);
}

}  // namespace lockstep
