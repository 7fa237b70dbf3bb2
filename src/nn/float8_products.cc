#include "lockstep/float8_products.h"

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/grad.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/quantize.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"

namespace lockstep {
namespace {

constexpr int64_t kOperands = 3;  // input, weights, gradient
constexpr int64_t kLongestHistory = 1 << 16;

}  // namespace

Float8History create_float8_history(const Precision& precision, int64_t products) {
  if (!precision.float8) return {};
  if (precision.float8_history < 1 || precision.float8_history > kLongestHistory)
    throw_error("precision float8: the history is {} steps; give a number from 1 to {}", precision.float8_history,
                kLongestHistory);
  if (products < 1) throw_error("precision float8: the model has no weight matrix; choose bfloat16");
  return {.largest = {zeros({products, kOperands, precision.float8_history})}};
}

std::vector<Array> float8_scales(const Float8History& history) {
  if (history.largest.empty()) return {};
  const Array limits = concatenate({full({2}, Float8E4M3::kMax), full({1}, Float8E5M2::kMax)});
  return unstack(power_of_two_above(max(history.largest[0], 2) / limits));
}

Float8History advanced(const Float8History& history, const std::vector<Array>& largest) {
  if (history.largest.empty()) return {};
  const Array& before = history.largest[0];
  const Array step = stack(largest), kept = where(isfinite(step), step, 0.0);
  const int64_t steps = before.shape(2);
  const Array newest = expand_dims(kept, 2);
  if (steps == 1) return {.largest = {newest}};
  return {.largest = {concatenate({slice(before, {0, 0, 1}, {before.shape(0), kOperands, steps}), newest}, 2)}};
}

namespace nn {
namespace {

// What the backward pass needs: the operands in the form in which they are multiplied again.
struct Float8Residuals {
  Array x_transposed, w;  // [in, m], [in, out]
  Array scales, largest_x, largest_w;
};

std::pair<Array, Float8Residuals> float8_forward(const Array& x, const Array& w, const Array& scales) {
  const Quantized a = quantize(x, at(scales, 0), f8_e4m3), b = quantize(w, at(scales, 1), f8_e4m3);
  return {scaled_product(a.values, b.transposed, a.scale, b.scale, x.dtype()),
          {a.transposed, b.values, scales, a.largest, b.largest}};
}

}  // namespace

const Array& Float8Products::next() {
  if (used_ == scales_.size())
    throw_error(
        "precision float8: the model applies more than {} linear layers, but has only {} weight matrices; compute in "
        "bfloat16 where layers share weights",
        scales_.size(), scales_.size());
  return scales_[used_++];
}

Array float8_dot(const Operand& x, const Operand& w, const Operand& scales) {
  if (w.rank() != 2 || x.rank() == 0 || x.shape(-1) != w.shape(0))
    throw_error("nn::float8_dot: x is {} and w {}; they must be [..., in] and [in, out]", to_string(x.shape()),
                to_string(w.shape()));
  if (scales.type() != Type{f32, {kOperands}})
    throw_error("nn::float8_dot: the scales are {}; they must be f32[3], of x, w and the gradient",
                to_string(scales.type()));
  const auto product = [](const Array& a, const Array& b, const Array& by) { return float8_forward(a, b, by).first; };
  const auto backward = [](const Float8Residuals& kept, const Array& ct) {
    const Array of_x = at(kept.scales, 0), of_w = at(kept.scales, 1);
    const Quantized g = quantize(ct, at(kept.scales, 2), f8_e5m2);
    return std::tuple{scaled_product(g.values, kept.w, g.scale, of_w, ct.dtype()),
                      scaled_product(kept.x_transposed, g.transposed, of_x, g.scale, ct.dtype()),
                      stack({kept.largest_x, kept.largest_w, g.largest})};
  };
  Shape shape = x.shape();
  const Array rows = reshape(x, {-1, w.shape(0)});
  shape.back() = w.shape(1);
  return reshape(custom_vjp(product, float8_forward, backward)(rows, astype(w, x.dtype()), scales), shape);
}

}  // namespace nn
}  // namespace lockstep
