// The type in which a layer computes. Safe from any thread.
#pragma once

#include "lockstep/array.h"

namespace lockstep::nn {

// That of x; of integers x, that of the weights.
inline DType layer_type(const Array& x, const Array& weights) {
  return is_floating(x.dtype()) ? x.dtype() : weights.dtype();
}

}  // namespace lockstep::nn
