#include <cmath>

#include "base/check.h"
#include "lockstep/control.h"
#include "lockstep/linalg.h"
#include "lockstep/nn.h"
#include "lockstep/random.h"
#include "lockstep/rearrange.h"
#include "nn/layer_type.h"

namespace lockstep::nn {
namespace {

constexpr int64_t kGruGates = 3, kLstmGates = 4;

Linear recurrent_weights(const Array& key, int64_t in, int64_t features, int64_t gates) {
  const double bound = 1 / std::sqrt(static_cast<double>(features));
  const auto [w, b] = random::split<2>(key);
  return {random::uniform(w, {in, gates * features}, -bound, bound),
          random::uniform(b, {gates * features}, -bound, bound)};
}

void check_recurrent_sizes(const char* what, int64_t in, int64_t features) {
  if (in < 1 || features < 1)
    throw_error("nn::{}: {} inputs and {} features; both must be positive", what, in, features);
}

// Checks the shapes of a layer and returns its number of features.
int64_t recurrent_features(const char* what, const Linear& input, const Linear& hidden, const Array& x, int64_t gates) {
  if (hidden.w.rank() != 2 || input.w.rank() != 2 || hidden.w.shape(1) != gates * hidden.w.shape(0) ||
      input.w.shape(1) != hidden.w.shape(1))
    throw_error("nn::apply: a {} layer has weights {} and {}; they must be [in, {} h] and [h, {} h]", what,
                to_string(input.w.shape()), to_string(hidden.w.shape()), gates, gates);
  if (x.rank() != 3 || x.shape(1) < 1)
    throw_error("nn::apply: a {} layer got x {}; it takes [batch, time, features] with at least one step", what,
                to_string(x.shape()));
  return hidden.w.shape(0);
}

Array first_state(const char* what, const std::optional<Array>& first, const Array& x, int64_t features) {
  const Shape shape{x.shape(0), features};
  if (!first) return zeros(shape, x.dtype());
  if (first->shape() != shape)
    throw_error("nn::apply: the first state of a {} layer is {}; it must be {}", what, to_string(first->shape()),
                to_string(shape));
  return astype(*first, x.dtype());
}

// What the inputs add to the gates, for all steps at once: [t, b, gates * h].
Array input_gates(const Linear& input, const Array& x) { return swapaxes(apply(input, x), 0, 1); }

}  // namespace

Gru gru(const Operand& key, int64_t in, int64_t features) {
  check_recurrent_sizes("gru", in, features);
  const auto [input, hidden] = random::split<2>(key);
  return {recurrent_weights(input, in, features, kGruGates), recurrent_weights(hidden, features, features, kGruGates)};
}

Lstm lstm(const Operand& key, int64_t in, int64_t features) {
  check_recurrent_sizes("lstm", in, features);
  const auto [input, hidden] = random::split<2>(key);
  return {recurrent_weights(input, in, features, kLstmGates),
          recurrent_weights(hidden, features, features, kLstmGates)};
}

std::pair<Array, Array> apply(const Gru& layer, const Operand& inputs, const std::optional<Array>& first) {
  const int64_t features = recurrent_features("GRU", layer.input, layer.hidden, inputs, kGruGates);
  const Array x = astype(inputs, layer_type(inputs, layer.input.w));
  const Array start = first_state("GRU", first, x, features);
  const auto step = [&](const Array& h, const Array& from_input) {
    const std::vector<Array> a = split(from_input, kGruGates, -1), b = split(apply(layer.hidden, h), kGruGates, -1);
    const Array r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]), n = tanh(a[2] + r * b[2]);
    const Array next = (1 - z) * n + z * h;
    return std::pair{next, next};
  };
  const auto [last, outputs] = scan(step, start, input_gates(layer.input, x));
  return {swapaxes(outputs, 0, 1), last};
}

std::pair<Array, LstmState> apply(const Lstm& layer, const Operand& inputs, const std::optional<LstmState>& first) {
  const int64_t features = recurrent_features("LSTM", layer.input, layer.hidden, inputs, kLstmGates);
  const Array x = astype(inputs, layer_type(inputs, layer.input.w));
  const LstmState start{first_state("LSTM", first ? std::optional(first->hidden) : std::nullopt, x, features),
                        first_state("LSTM", first ? std::optional(first->cell) : std::nullopt, x, features)};
  const auto step = [&](const LstmState& state, const Array& from_input) {
    const std::vector<Array> gate = split(from_input + apply(layer.hidden, state.hidden), kLstmGates, -1);
    const Array cell = sigmoid(gate[1]) * state.cell + sigmoid(gate[0]) * tanh(gate[2]);
    const LstmState next{sigmoid(gate[3]) * tanh(cell), cell};
    return std::pair{next, next.hidden};
  };
  const auto [last, outputs] = scan(step, start, input_gates(layer.input, x));
  return {swapaxes(outputs, 0, 1), last};
}

}  // namespace lockstep::nn
