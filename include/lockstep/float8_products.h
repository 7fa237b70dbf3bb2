// Products in 8-bit floats with delayed scaling, for the layers of a model in training.
//
//   Float8History history = create_float8_history(precision, 24);
//   const auto loss = [&](const Params& params, const std::vector<Array>& scales) {
//     nn::Float8Products float8(scales);
//     return task_loss(params, batch, {.training = true, .compute = bf16, .float8 = &float8});
//   };
//   auto [value, grads] = value_and_grad<0, 1>(loss)(params, float8_scales(history));
//   history = advanced(history, grads.second);
//
// An operand is divided by its scale, rounded to 8 bits, multiplied and summed in f32; the sums are multiplied by both
// scales. Inputs and weights are f8_e4m3, gradients f8_e5m2. A scale is a power of two that brings the largest absolute
// value of the last steps just below the largest number of the type, so scaling itself never rounds. Larger values than
// those of the last steps saturate. The scale is 1 until an operand was not zero.
//
// The largest values of a step are known when its gradients are: the backward pass computes those of gradients. So the
// "gradient" of the scales of a product is, by definition, these three values. The gradients of a product that is
// applied several times are added: an upper bound of the largest value. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"
#include "lockstep/precision.h"

namespace lockstep {

// Part of the training state: the largest absolute values of the input, the weights and the gradient of each product in
// the last steps, the newest last. f32 [products, 3, steps], or none without Precision::float8.
struct Float8History {
  std::vector<Array> largest;
};

// Zeros. Throws Error if there are no products or the number of steps is out of range.
Float8History create_float8_history(const Precision&, int64_t products);
// The scales of each product: f32 [3].
std::vector<Array> float8_scales(const Float8History&);
// The history after a step, from the gradients of the scales. Values that are not finite count as zero.
Float8History advanced(const Float8History&, const std::vector<Array>& largest);

namespace nn {

// The scales of the products of a model, in the order in which layers are applied. Not thread-safe.
class Float8Products {
 public:
  explicit Float8Products(std::vector<Array> scales) : scales_(std::move(scales)) {}

  // The scales of the next product. Throws Error if all are in use.
  const Array& next();
  size_t used() const { return used_; }

 private:
  std::vector<Array> scales_;
  size_t used_ = 0;
};

// x [..., in] times w [in, out] in 8-bit floats, with f32 scales [3] of x, w and the gradient of the result. The result
// has the type of x. The gradient of the scales is the largest absolute values, see above.
Array float8_dot(const Operand& x, const Operand& w, const Operand& scales);

}  // namespace nn
}  // namespace lockstep
