#include <algorithm>

#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/float8_products.h"
#include "lockstep/indexing.h"
#include "lockstep/initializers.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/nn.h"
#include "lockstep/norm.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "nn/layer_type.h"
#include "nn/plain_weights.h"

namespace lockstep::nn {
namespace {

void check_sizes(const char* what, int64_t in, int64_t out) {
  if (in < 1 || out < 1) throw_error("nn::{}: {} inputs and {} outputs; both must be positive", what, in, out);
}

}  // namespace

Dense dense(const Operand& key, int64_t in, int64_t out) {
  check_sizes("dense", in, out);
  return {plain_he_normal(key, {in, out}), zeros({out})};
}

Linear linear(const Operand& key, int64_t in, int64_t out, bool bias) {
  check_sizes("linear", in, out);
  return {plain_he_normal(key, {in, out}), bias ? std::optional(zeros({out})) : std::nullopt};
}

Embedding embedding(const Operand& key, int64_t count, int64_t features) {
  if (count < 1 || features < 1)
    throw_error("nn::embedding: {} rows of {} features; both must be positive", count, features);
  return {initializers::normal(key, {count, features}, 0.02)};
}

Conv2d conv2d(const Operand& key, Extent2d kernel, int64_t in, int64_t out) {
  check_sizes("conv2d", in, out);
  if (kernel.height < 1 || kernel.width < 1)
    throw_error("nn::conv2d: the kernel is {} x {}; it must be at least 1 x 1", kernel.height, kernel.width);
  return {plain_he_normal(key, {kernel.height, kernel.width, in, out}), zeros({out})};
}

LayerNorm layer_norm(int64_t features, SourceLine at) {
  const detail::CallerLine line(at);
  if (features < 1) throw_error("nn::layer_norm: {} features; the number must be positive", features);
  return {ones({features}), zeros({features})};
}

namespace {

// x w + b. `what` names the layer in errors; `b`: null if there is none; `float8`: null, or the scales of products in
// 8-bit floats.
Array product_and_bias(const char* what, const Array& w, const Array* b, const Array& x, Float8Products* float8) {
  if (w.rank() != 2 || (b && b->shape() != Shape{w.shape(-1)}))
    throw_error("nn::apply: a {} layer has w {} and b {}; they must be [in, out] and [out]", what, to_string(w.shape()),
                b ? to_string(b->shape()) : "none");
  if (x.rank() == 0 || x.shape(-1) != w.shape(0))
    throw_error("nn::apply: x {} has {} features, but w {} takes {}; give [..., {}]", to_string(x.shape()),
                x.rank() == 0 ? 0 : x.shape(-1), to_string(w.shape()), w.shape(0), w.shape(0));
  const DType dtype = layer_type(x, w);
  const Array in = astype(x, dtype);
  const Array y = float8 ? float8_dot(in, w, float8->next()) : dot(in, astype(w, dtype));
  return b ? y + astype(*b, dtype) : y;
}

Array apply_linear(const Linear& layer, const Array& x, Float8Products* float8) {
  return product_and_bias("linear", layer.w, layer.b ? &*layer.b : nullptr, x, float8);
}

}  // namespace

Array apply(const Dense& layer, const Operand& x) { return product_and_bias("dense", layer.w, &layer.b, x, nullptr); }
Array apply(const Linear& layer, const Operand& x) { return apply_linear(layer, x, nullptr); }
Array apply(const Linear& layer, const Operand& x, const Mode& mode) { return apply_linear(layer, x, mode.float8); }

Array apply(const Embedding& layer, const Operand& rows) {
  if (layer.table.rank() != 2)
    throw_error("nn::apply: an embedding has the table {}; it must be [count, features]",
                to_string(layer.table.shape()));
  if (!is_integer(rows.dtype()))
    throw_error("nn::apply: an embedding takes integers, not {}; convert them with astype(x, i32)",
                to_string(rows.type()));
  return take(layer.table, rows);
}

Array apply(const Conv2d& layer, const Operand& x, const Conv2dOptions& options) {
  if (layer.w.rank() != 4 || layer.b.shape() != Shape{layer.w.shape(-1)})
    throw_error("nn::apply: a convolution has w {} and b {}; they must be [kh, kw, in, out] and [out]",
                to_string(layer.w.shape()), to_string(layer.b.shape()));
  const DType dtype = layer_type(x, layer.w);
  return lockstep::conv2d(astype(x, dtype), astype(layer.w, dtype), options) + astype(layer.b, dtype);
}

Array apply(const LayerNorm& layer, const Operand& x, double epsilon) {
  if (x.rank() == 0 || layer.scale.shape() != Shape{x.shape(-1)} || layer.bias.shape() != layer.scale.shape())
    throw_error("nn::apply: x is {}, but the layer norm has scale {} and bias {}; give x as [..., features]",
                to_string(x.shape()), to_string(layer.scale.shape()), to_string(layer.bias.shape()));
  if (!(epsilon >= 0)) throw_error("nn::apply: the epsilon of a layer norm is {}; it must not be negative", epsilon);
  return lockstep::layer_norm(x, layer.scale, layer.bias, epsilon);
}

Array flatten(const Operand& x) {
  if (x.rank() == 0) throw_error("nn::flatten: a scalar has no examples; give [n, ...]");
  return lockstep::flatten(x.rank() == 1 ? expand_dims(x, 1) : Array(x), 1);
}

void Mode::update(const State& state, const Array& value) const {
  if (value.type().shape != state.type().shape || value.dtype() != state.dtype())
    throw_error("nn::Mode::update: the state is {}, its next value {}; both must have one type",
                to_string(state.type()), to_string(value.type()));
  if (!updates && training)
    throw_error(
        "nn::Mode::update: a layer has a next value of its state {} in training, but Mode::updates is null; set it, "
        "and "
        "return nn::with_updates(model, updates) from the loss",
        to_string(state.type()));
  if (updates) updates->updates_.emplace_back(state, value);
}

Array StateUpdates::value(const Array& state) const {
  for (auto each = updates_.rbegin(); each != updates_.rend(); ++each)
    if (each->first.node() == state.node()) return each->second;
  return state;
}

void StateUpdates::assign(detail::TreeRef model) const {
  struct Assignment {
    const StateUpdates& updates;
    std::vector<detail::Node*> assigned;
  } made{*this, {}};
  detail::visit_leaves(model, &made, [](void* to, const std::string&, const Array& leaf, bool is_state) {
    if (!is_state) return;
    auto& [updates, assigned] = *static_cast<Assignment*>(to);
    assigned.push_back(leaf.node());
    const_cast<Array&>(leaf) = updates.value(leaf);
  });
  for (const auto& [state, next] : updates_)
    if (std::find(made.assigned.begin(), made.assigned.end(), state.node()) == made.assigned.end())
      throw_error(
          "nn::with_updates: an update of {} belongs to no state of this model; pass the model that the layers were "
          "applied from, and a StateUpdates for each model",
          to_string(state.type()));
}

Array dropout(const Mode& mode, int64_t site, const Operand& x, double rate) {
  if (!(rate >= 0 && rate < 1)) throw_error("nn::dropout: the rate is {}; it must be at least 0 and less than 1", rate);
  if (!mode.training || rate == 0) return x;
  if (!mode.key.defined()) throw_error("nn::dropout: training without a key; set Mode::key, a new one for every step");
  const Array kept = random::bernoulli(random::fold_in(mode.key, site), full({}, Array(1 - rate), f32), x.shape());
  return where(kept, x * (1 / (1 - rate)), 0.0);
}

}  // namespace lockstep::nn
