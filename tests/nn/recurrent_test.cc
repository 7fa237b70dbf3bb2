#include <cmath>

#include "array/near.h"
#include "lockstep/lockstep.h"
#include "lockstep/nn.h"
#include "nn/differences.h"
#include "nn/host_layers.h"

namespace lockstep {
namespace {

#define EXPECT_ERROR(statement, part) EXPECT_THROWS(static_cast<void>(statement), Error, part)

constexpr int64_t kBatch = 2, kSteps = 3, kInputs = 4, kFeatures = 3;

template <class T>
T in_f64(const T& tree) {
  return tree_map([](const Array& a) { return astype(a, f64); }, tree);
}

Array inputs() { return astype(random::normal(random::key(1), {kBatch, kSteps, kInputs}), f64); }
Array state(uint64_t seed) { return astype(random::normal(random::key(seed), {kBatch, kFeatures}), f64); }

TEST(Gru, MatchesPlainLoops) {
  const nn::Gru layer = in_f64(nn::gru(random::key(2), kInputs, kFeatures));
  const Array x = inputs(), first = state(3);
  const host::Rows rows = host::rows_of(x), starts = host::rows_of(first);
  host::Rows outputs, last;
  for (int64_t b = 0; b < kBatch; ++b) {
    host::Row h = starts[static_cast<size_t>(b)];
    for (int64_t t = 0; t < kSteps; ++t) {
      const host::Row a = host::linear(layer.input, rows[static_cast<size_t>(b * kSteps + t)]);
      const host::Row u = host::linear(layer.hidden, h);
      for (size_t i = 0; i < h.size(); ++i) {
        const double r = host::sigmoid(a[i] + u[i]), z = host::sigmoid(a[i + kFeatures] + u[i + kFeatures]);
        const double n = std::tanh(a[i + 2 * kFeatures] + r * u[i + 2 * kFeatures]);
        h[i] = (1 - z) * n + z * h[i];
      }
      outputs.push_back(h);
    }
    last.push_back(h);
  }
  const auto [y, h] = nn::apply(layer, x, first);
  EXPECT_EQ(y.shape(), (Shape{kBatch, kSteps, kFeatures}));
  EXPECT_ELEMENTS(y, host::flat(outputs), 1e-12);
  EXPECT_ELEMENTS(h, host::flat(last), 1e-12);
}

TEST(Lstm, MatchesPlainLoops) {
  const nn::Lstm layer = in_f64(nn::lstm(random::key(2), kInputs, kFeatures));
  const Array x = inputs();
  const nn::LstmState first{state(3), state(4)};
  const host::Rows rows = host::rows_of(x), hidden = host::rows_of(first.hidden), cells = host::rows_of(first.cell);
  host::Rows outputs, last_cell;
  for (int64_t b = 0; b < kBatch; ++b) {
    host::Row h = hidden[static_cast<size_t>(b)], c = cells[static_cast<size_t>(b)];
    for (int64_t t = 0; t < kSteps; ++t) {
      const host::Row a = host::linear(layer.input, rows[static_cast<size_t>(b * kSteps + t)]);
      const host::Row u = host::linear(layer.hidden, h);
      for (size_t i = 0; i < h.size(); ++i) {
        const auto gate = [&](size_t k) { return a[i + k * kFeatures] + u[i + k * kFeatures]; };
        c[i] = host::sigmoid(gate(1)) * c[i] + host::sigmoid(gate(0)) * std::tanh(gate(2));
        h[i] = host::sigmoid(gate(3)) * std::tanh(c[i]);
      }
      outputs.push_back(h);
    }
    last_cell.push_back(c);
  }
  const auto [y, last] = nn::apply(layer, x, first);
  EXPECT_ELEMENTS(y, host::flat(outputs), 1e-12);
  EXPECT_ELEMENTS(last.cell, host::flat(last_cell), 1e-12);
  EXPECT_ELEMENTS(last.hidden, slice(y, {0, kSteps - 1, 0}, {kBatch, kSteps, kFeatures}).to_vector<double>(), 0);
}

TEST(Gru, StartsFromZerosAndContinues) {
  const nn::Gru layer = nn::gru(random::key(2), kInputs, kFeatures);
  const Array x = astype(inputs(), f32);
  const auto [whole, last] = nn::apply(layer, x);
  EXPECT_ELEMENTS(nn::apply(layer, x, zeros({kBatch, kFeatures})).first, whole.to_vector<double>(), 0);
  const auto [begin, middle] = nn::apply(layer, slice(x, {0, 0}, {kBatch, 2}));
  const auto [rest, end] = nn::apply(layer, slice(x, {0, 2}, {kBatch, kSteps}), middle);
  EXPECT_ELEMENTS(end, last.to_vector<double>(), 1e-6);
  EXPECT_ELEMENTS(concatenate({begin, rest}, 1), whole.to_vector<double>(), 1e-6);
}

// Gradients with respect to the input, the first state and every weight of a layer.
template <class Layer, class Loss>
void expect_recurrent_gradients(const Layer& layer, const Loss& loss) {
  const Array x = inputs(), first = state(3);
  expect_gradient([&](Array v) { return loss(layer, v, first); }, x);
  expect_gradient([&](Array v) { return loss(layer, x, v); }, first);
  const std::vector<Array> leaves = tree_leaves(layer);
  for (size_t i = 0; i < leaves.size(); ++i)
    expect_gradient(
        [&](Array v) {
          std::vector<Array> moved = leaves;
          moved[i] = v;
          return loss(tree_unflatten(layer, moved), x, first);
        },
        leaves[i]);
}

TEST(Gru, GradientsMatchFiniteDifferences) {
  const Array factors = astype(random::normal(random::key(5), {kBatch, kSteps, kFeatures}), f64);
  expect_recurrent_gradients(in_f64(nn::gru(random::key(2), kInputs, kFeatures)),
                             [&](const nn::Gru& g, const Array& x, const Array& h) {
                               const auto [y, last] = nn::apply(g, x, h);
                               return sum(factors * y) + sum(square(last));
                             });
}

TEST(Lstm, GradientsMatchFiniteDifferences) {
  const Array factors = astype(random::normal(random::key(5), {kBatch, kSteps, kFeatures}), f64);
  expect_recurrent_gradients(in_f64(nn::lstm(random::key(2), kInputs, kFeatures)),
                             [&](const nn::Lstm& l, const Array& x, const Array& h) {
                               const auto [y, last] = nn::apply(l, x, nn::LstmState{h, 2.0 * h});
                               return sum(factors * y) + sum(square(last.cell));
                             });
}

TEST(Lstm, ComputesInTheTypeOfX) {
  const auto f = jit([](nn::Lstm layer, Array x) { return nn::apply(layer, x); });
  const auto [y, last] = f(nn::lstm(random::key(1), 2, 3), ones({2, 2, 2}, bf16));
  EXPECT_EQ(y.type(), (Type{bf16, {2, 2, 3}}));
  EXPECT_EQ(last.cell.dtype(), bf16);
}

TEST(Recurrent, InvalidShapesAreRejected) {
  const nn::Gru layer = nn::gru(random::key(2), 4, 3);
  EXPECT_ERROR(nn::apply(layer, ones({2, 4})), "a GRU layer got x [2, 4]; it takes [batch, time, features]");
  EXPECT_ERROR(nn::apply(layer, ones({2, 0, 4})), "with at least one step");
  EXPECT_ERROR(nn::apply(layer, ones({2, 3, 5})), "has 5 features, but w [4, 9] takes 4");
  EXPECT_ERROR(nn::apply(layer, ones({2, 3, 4}), ones({2, 4})),
               "the first state of a GRU layer is [2, 4]; it must be [2, 3]");
  EXPECT_ERROR(nn::apply(nn::Lstm{layer.input, layer.hidden}, ones({2, 3, 4})),
               "a LSTM layer has weights [4, 9] and [3, 9]; they must be [in, 4 h] and [h, 4 h]");
  EXPECT_ERROR(nn::lstm(random::key(2), 0, 3), "nn::lstm: 0 inputs and 3 features; both must be positive");
}

}  // namespace
}  // namespace lockstep
