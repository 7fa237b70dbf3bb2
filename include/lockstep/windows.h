// Windows that slide over the dimensions of an array, and reductions over them. Safe to call from any thread.
//
//   Array y = reduce_window(x, 0, WindowOp::add, {.window_dimensions = {1, 3, 3, 1}, .padding = "SAME"});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
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

// The padding of the dimensions that windows slide over:
//   "VALID"       none
//   "SAME"        so much that there are ceil(extent / stride) windows; an odd element goes to the end
//   "SAME_LOWER"  the same; an odd element goes to the beginning
//   {{before, after}, ...}  explicit widths for each dimension; negative ones cut elements off
struct WindowPadding {
  enum class Kind : uint8_t { valid, same, same_lower, explicit_widths };
  using Widths = std::vector<std::pair<int64_t, int64_t>>;

  WindowPadding(const char* name) : WindowPadding(std::string_view(name)) {}  // NOLINT: reads as an argument
  WindowPadding(std::string_view name);                                       // NOLINT; throws Error for others
  WindowPadding(std::initializer_list<std::pair<int64_t, int64_t>> each)      // NOLINT
      : kind(Kind::explicit_widths), widths(each) {}
  WindowPadding(Widths each) : kind(Kind::explicit_widths), widths(std::move(each)) {}  // NOLINT

  Kind kind = Kind::valid;
  Widths widths;
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
