// Axes: the dimensions that a function works on. A plain value.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

// All dimensions (the default), one, or a list: sum(x), sum(x, -1), sum(x, {0, 1}). Negative axes count from
// the back. An empty vector selects no dimension.
//
// There is no std::initializer_list constructor: g++ 12 would read options such as {.ddof = 1} as the list
// {1}.
struct Axes {
  Axes() = default;
  template <std::integral... T>
  requires(sizeof...(T) > 0 && !(std::same_as<T, bool> || ...)) Axes(T... axes)  // NOLINT: reads as an argument
      : list(std::vector<int64_t>{static_cast<int64_t>(axes)...}) {}
  Axes(std::vector<int64_t> axes) : list(std::move(axes)) {}  // NOLINT

  std::optional<std::vector<int64_t>> list;  // absent: all dimensions
};

}  // namespace lockstep
