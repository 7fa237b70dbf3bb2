// nn::State: an array of a model that is computed, not trained, such as a running mean. Safe from any thread.
//
//   struct BatchNorm { Array scale, bias; nn::State mean, variance; };
//
// In a tree it is a leaf like any Array, with the path of its field. The trainer gives it no gradient and no optimizer
// state; a layer assigns its next value with nn::Mode::update().
#pragma once

#include <utility>

#include "lockstep/array.h"

namespace lockstep::nn {

struct State : Array {
  State() = default;
  State(Array value) : Array(std::move(value)) {}  // NOLINT: assigned like an array
};

}  // namespace lockstep::nn
