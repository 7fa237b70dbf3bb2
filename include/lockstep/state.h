// nn::State: an array of a model that is computed, not trained, such as a running mean. Safe from any thread.
//
//   struct BatchNorm { Array scale, bias; nn::State mean, variance; };
//
// In a tree it is a leaf like any Array, with the path of its field. Optimizers leave it as it is and keep no state for
// it. A layer computes its next value by nn::Mode::update(), and nn::with_updates() returns the model with it.
#pragma once

#include <utility>

#include "lockstep/array.h"

namespace lockstep::nn {

struct State : Array {
  State() = default;
  State(Array value) : Array(std::move(value)) {}  // NOLINT: assigned like an array
};

}  // namespace lockstep::nn
