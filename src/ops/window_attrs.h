// The attributes of ops with windows that slide over images: lists of a fixed length. Pure functions,
// safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "lockstep/shape.h"
#include "program/attrs.h"

namespace lockstep {

template <size_t kN>
std::vector<int64_t> to_ints(const std::array<int64_t, kN>& values) {
  return {values.begin(), values.end()};
}

// The attribute `name`, a list of kN numbers. Throws Error if it has another length, or if a number is below `least` or
// does not fit 31 bits.
template <size_t kN>
std::array<int64_t, kN> fixed_ints(std::string_view op, const Attrs& attrs, std::string_view name, int64_t least) {
  const std::vector<int64_t>& from = attrs.ints(name);
  if (from.size() != kN) throw_error("{}: {} is {}; it takes {} numbers", op, name, to_string(from), kN);
  std::array<int64_t, kN> to;
  for (size_t i = 0; i < kN; ++i) {
    if (from[i] < least || from[i] > INT32_MAX)
      throw_error("{}: {} is {}; each number must be at least {} and fit 31 bits", op, name, to_string(from), least);
    to[i] = from[i];
  }
  return to;
}

}  // namespace lockstep
