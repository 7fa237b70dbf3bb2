// The peak speed of GPUs, for the metric "mfu". Pure functions.
#pragma once

#include <string_view>

#include "lockstep/dtype.h"

namespace lockstep::detail {

// Dense floating-point operations per second of a GPU with this name ("NVIDIA H200") in products of `compute`. `tf32`:
// those of f32 use TF32. 0: unknown.
double peak_of_gpu(std::string_view name, DType compute, bool tf32);

}  // namespace lockstep::detail
