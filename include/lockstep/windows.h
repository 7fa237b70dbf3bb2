// Windows that slide over the dimensions of an array, and reductions over them. Safe to call from any thread.
//
//   Array y = reduce_window(x, 0, WindowOp::add, {.window_dimensions = {1, 3, 3, 1}, .padding = "SAME"});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

// A number for each dimension that windows slide over, or one number for all of them. Empty: 1.
struct WindowExtents {
  WindowExtents() = default;
  WindowExtents(int64_t all) : values{all} {}                            // NOLINT: reads as an argument
  WindowExtents(std::initializer_list<int64_t> each) : values(each) {}   // NOLINT
  WindowExtents(std::vector<int64_t> each) : values(std::move(each)) {}  // NOLINT

  std::vector<int64_t> values;
};

// The padding before and after one dimension: one number for both, or one each. Negative ones cut elements off.
struct PaddingWidths {
  PaddingWidths(int64_t both) : before(both), after(both) {}  // NOLINT: reads as an argument
  PaddingWidths(int64_t first, int64_t last) : before(first), after(last) {}
  PaddingWidths(std::pair<int64_t, int64_t> each) : before(each.first), after(each.second) {}  // NOLINT

  int64_t before, after;
};

namespace detail {
template <class T>
concept PaddingNumber = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
concept PaddingName = std::is_convertible_v<const T&, std::string_view>;
}  // namespace detail

// The padding of the dimensions that windows slide over:
//   "VALID"       none
//   "SAME"        so much that there are ceil(extent / stride) windows; an odd element goes to the end
//   "SAME_LOWER"  the same; an odd element goes to the beginning
//   1                       that much on both sides of each dimension
//   {1, {before, after}}    explicit widths for each dimension
struct WindowPadding {
  enum class Kind : uint8_t { valid, same, same_lower, explicit_widths, equal_widths };
  using Widths = std::vector<std::pair<int64_t, int64_t>>;

  // Throws Error for other names.
  template <detail::PaddingName T>
  WindowPadding(const T& name, SourceLine at = SourceLine::here())  // NOLINT: reads as an argument
      : WindowPadding(std::string_view(name), at, 0) {}
  template <detail::PaddingNumber T>
  WindowPadding(T all) : kind(Kind::equal_widths), widths{{all, all}} {}                // NOLINT
  WindowPadding(std::initializer_list<PaddingWidths> each);                             // NOLINT
  WindowPadding(Widths each) : kind(Kind::explicit_widths), widths(std::move(each)) {}  // NOLINT

  Kind kind = Kind::valid;
  Widths widths;  // one for each dimension; equal_widths: one for all of them

 private:
  WindowPadding(std::string_view name, SourceLine at, int);
};

// How the elements of a window are combined.
enum class WindowOp : uint8_t { add, mul, max, min };

// Every dimension of the array takes part; dimensions without windows have a window of 1.
struct ReduceWindowOptions {
  WindowExtents window_dimensions;
  WindowExtents window_strides = {};
  WindowPadding padding = "VALID";
  WindowExtents base_dilation = {};    // distance between the array's elements, with padding between them
  WindowExtents window_dilation = {};  // distance between a window's elements
};

// Combines the elements of each window, and `init`, a scalar; padding has the value of `init`. The gradient of max and
// min goes to the first of equal elements in row-major order. Throws Error when a window is larger than the padded
// array.
Array reduce_window(const Operand& x, const Operand& init, WindowOp op, const ReduceWindowOptions& options);

}  // namespace lockstep
