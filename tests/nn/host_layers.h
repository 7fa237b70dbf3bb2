// Layers as plain loops in double on the host: references that share no code with the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/nn.h"

namespace lockstep::host {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

// The elements of an array as rows of its last dimension.
inline Rows rows_of(const Array& a) {
  const std::vector<double> flat = a.to_vector<double>();
  const auto width = static_cast<size_t>(a.shape(-1));
  Rows out;
  for (size_t i = 0; i < flat.size(); i += width) out.emplace_back(flat.begin() + i, flat.begin() + i + width);
  return out;
}

inline std::vector<double> flat(const Rows& rows) {
  std::vector<double> out;
  for (const Row& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}

inline Row linear(const Rows& w, const std::optional<Row>& b, const Row& x) {
  Row y(w[0].size());
  for (size_t o = 0; o < y.size(); ++o) {
    y[o] = b ? (*b)[o] : 0;
    for (size_t i = 0; i < x.size(); ++i) y[o] += x[i] * w[i][o];
  }
  return y;
}

inline Row linear(const nn::Linear& layer, const Row& x) {
  return linear(rows_of(layer.w), layer.b ? std::optional(layer.b->to_vector<double>()) : std::nullopt, x);
}

inline Rows linear(const nn::Linear& layer, const Rows& x) {
  Rows out;
  for (const Row& row : x) out.push_back(linear(layer, row));
  return out;
}

inline Row layer_norm(const Row& x, const Row& scale, const Row& bias, double epsilon) {
  double mean = 0, variance = 0;
  for (double v : x) mean += v / static_cast<double>(x.size());
  for (double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  Row y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back((x[i] - mean) / std::sqrt(variance + epsilon) * scale[i] + bias[i]);
  return y;
}

inline Row rms_norm(const Row& x, const Row& scale, double epsilon) {
  double squares = 0;
  for (double v : x) squares += v * v / static_cast<double>(x.size());
  Row y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] / std::sqrt(squares + epsilon) * scale[i]);
  return y;
}

// One head of one query: the sum of values weighted by the softmax of the scores of the visible keys; zeros if there
// is none.
inline Row attend(const Row& query, const Rows& keys, const Rows& values, const std::vector<bool>& visible) {
  Row weights(keys.size()), out(values[0].size());
  double largest = -1e300, total = 0;
  for (size_t s = 0; s < keys.size(); ++s) {
    double product = 0;
    for (size_t i = 0; i < query.size(); ++i) product += query[i] * keys[s][i];
    weights[s] = product / std::sqrt(static_cast<double>(query.size()));
    if (visible[s]) largest = std::max(largest, weights[s]);
  }
  for (size_t s = 0; s < keys.size(); ++s) {
    weights[s] = visible[s] ? std::exp(weights[s] - largest) : 0;
    total += weights[s];
  }
  for (size_t s = 0; s < keys.size() && total > 0; ++s)
    for (size_t i = 0; i < out.size(); ++i) out[i] += weights[s] / total * values[s][i];
  return out;
}

// Rotates the pairs (i, i + e/2) of one head as complex numbers.
inline Row rotate(const Row& x, int64_t position, double base) {
  const size_t half = x.size() / 2;
  Row y(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) / std::pow(base, static_cast<double>(i) / static_cast<double>(half));
    y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
    y[i + half] = x[i] * std::sin(angle) + x[i + half] * std::cos(angle);
  }
  return y;
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace lockstep::host
