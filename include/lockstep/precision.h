// In which element type a model computes. Parameters, optimizer state, reductions and losses stay f32; with bf16 or f16
// the model sees parameters and inputs converted. f16 overflows early, so its loss is scaled up before the gradient is
// taken; the scale is halved, and the step skipped, when a gradient is not finite, and doubled after a while without.
// Safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/array.h"

namespace lockstep {

struct Precision {
  DType compute = f32;
  bool loss_scaling = false;
  double initial_scale = 65536;
  double factor = 2;               // by which the scale shrinks and grows
  int64_t growth_interval = 2000;  // so many finite steps make it grow
  double largest_scale = 16777216;
};

// "float32", "bfloat16", "float16" (and f32, bf16, f16); float16 scales its loss. Throws Error with the list for
// another name.
Precision precision_of(std::string_view name);
std::string to_string(const Precision&);

// Part of the training state; undefined arrays, and no part at all, without loss scaling.
struct LossScale {
  std::vector<Array> scale;         // f32, one element or none
  std::vector<Array> finite_steps;  // i32: since the scale last changed
};

// Throws Error when a number makes no sense, naming it.
LossScale create_loss_scale(const Precision&);
// The loss to differentiate.
Array scaled(const LossScale&, const Array& loss);
// Gradients of the loss itself, in f32 (f64 stays f64).
std::vector<Array> unscaled(const LossScale&, const std::vector<Array>& grads);
// The scale after a step whose gradients were, or were not, all finite (a bool scalar): between 1 and largest_scale.
LossScale adjusted(const Precision&, const LossScale&, const Array& finite);
// Are all elements of all leaves finite? A bool scalar.
Array all_finite(const std::vector<Array>& leaves);

// Floating arrays converted, others as they are.
std::vector<Array> cast_floating(const std::vector<Array>& leaves, DType dtype);

}  // namespace lockstep
