// Test data with closed forms: the input of a rank at an index. Pure functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "lockstep/dtype.h"

namespace lockstep::conformance {

// std::vector<bool> has no addressable elements.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class T>
T convert(int64_t value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

// Small, so that sums over 8 ranks are exact in every type: 1 to 7, and either 0 or 1 for booleans.
inline int64_t input(DType dtype, int rank, int64_t i) {
  const int64_t value = (i * 3 + rank * 5 + i / 64) % 7;
  return dtype == DType::boolean ? static_cast<int64_t>(value < 2) : value + 1;
}

template <class T, class F>
std::vector<Stored<T>> fill(int64_t count, F value) {
  std::vector<Stored<T>> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = convert<Stored<T>>(value(i));
  return values;
}

template <class T>
std::vector<Stored<T>> input(int rank, int64_t count) {
  return fill<T>(count, [&](int64_t i) { return input(dtype_of<T>, rank, i); });
}

// Compares bits, not values: -0 differs from 0.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace lockstep::conformance
