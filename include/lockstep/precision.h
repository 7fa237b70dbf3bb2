// Mixed precision: the element type in which a model computes. Parameters, optimizer state, reductions and losses stay
// f32; with bf16 or f16 the model gets converted parameters and inputs. f16 has a small range, so it uses dynamic loss
// scaling: the loss is scaled up before differentiation. When a gradient is not finite, the step is skipped and the
// scale is reduced; after growth_interval finite steps it is raised again. With float8 the model computes in bf16 but
// for products of linear layers in training: see float8_products.h. Safe from any thread.
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
  int64_t growth_interval = 2000;  // finite steps after which the scale grows
  double largest_scale = 16777216;
  bool float8 = false;          // products of nn::Linear in 8-bit floats
  int64_t float8_history = 16;  // steps whose largest values determine the scales
};

// "float32", "bfloat16", "float16", "float8" (or f32, bf16, f16, f8, fp32, fp16, fp8); float16 enables loss scaling.
// Throws Error for an unknown name, listing the known ones.
Precision precision_of(std::string_view name);
std::string to_string(const Precision&);

// Part of the training state. Both vectors hold one scalar array, or none without loss scaling.
struct LossScale {
  std::vector<Array> scale;         // f32
  std::vector<Array> finite_steps;  // i32: steps since the scale last changed
};

// Throws Error when a value is out of range, naming the field.
LossScale create_loss_scale(const Precision&);
// The loss times the scale: what is differentiated.
Array scaled(const LossScale&, const Array& loss);
// The gradients divided by the scale, in f32 (f64 stays f64).
std::vector<Array> unscaled(const LossScale&, const std::vector<Array>& grads);
// The scale after a step, between 1 and largest_scale. `finite` is a bool scalar: whether all gradients were finite.
LossScale adjusted(const Precision&, const LossScale&, const Array& finite);
// Bool scalar: whether all elements of all leaves are finite.
Array all_finite(const std::vector<Array>& leaves);

// Converts floating-point arrays to `dtype`; returns others unchanged.
std::vector<Array> cast_floating(const std::vector<Array>& leaves, DType dtype);

}  // namespace lockstep
