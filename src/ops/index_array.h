// What is known of an array that a program computes from indices alone, such as a causal mask: no element is computed.
// Pure functions and plain values, safe from any thread.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "ops/dims.h"
#include "program/definitions.h"

namespace lockstep {

// constant + sum over d of steps[d] * index[d].
struct AffineArray {
  double constant = 0;
  std::vector<double> steps;  // one per dimension

  bool operator==(const AffineArray&) const = default;
};

// Elements are `yes` where all of `where` are at least 0, and `no` elsewhere. No conditions: all elements are `yes`. In an
// array of booleans, yes and no are 1 and 0 or 0 and 1.
struct ChoiceArray {
  std::vector<AffineArray> where;
  double yes = 0, no = 0;
  size_t rank = 0;
};

using IndexArray = std::variant<AffineArray, ChoiceArray>;

// Reads the equations that define `value`: iota, constants, views, sums and comparisons of them. nullopt if the array
// depends on data, or is of neither form.
std::optional<IndexArray> read_index_array(const DefinedValue& value);

// The value of all elements; nullopt if they differ or are unknown.
std::optional<double> read_constant(const DefinedValue& value);

// The array as a choice; nullopt if it is unknown or not one.
std::optional<ChoiceArray> read_choice(const DefinedValue& value);

}  // namespace lockstep
