// Axes: which dimensions of an array a function works on. A plain value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

// All of them (the default), one, or a list: sum(x), sum(x, -1), sum(x, {0, 1}). Negative axes count from the back. An
// empty vector is no axis at all.
struct Axes {
  Axes() = default;
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Axes(T axis)  // NOLINT: reads as an argument
      : list(std::vector<int64_t>{static_cast<int64_t>(axis)}) {}
  Axes(std::initializer_list<int64_t> axes) : list(axes) {}   // NOLINT
  Axes(std::vector<int64_t> axes) : list(std::move(axes)) {}  // NOLINT

  std::optional<std::vector<int64_t>> list;  // absent: all
};

}  // namespace lockstep
