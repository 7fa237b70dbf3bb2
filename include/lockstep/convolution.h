// Convolution and pooling of images of shape [n, h, w, c]. Safe to call from any thread.
//
//   Array y = relu(conv2d(x, w, {.stride = 2}));   // padding "SAME" by default
//   Array z = max_pool(y);                         // windows of 2 x 2
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/array.h"

namespace lockstep {

// Height and width: one number for both, or one each.
struct Extent2d {
  Extent2d(int64_t both) : height(both), width(both) {}  // NOLINT: reads as an argument
  Extent2d(int64_t h, int64_t w) : height(h), width(w) {}

  int64_t height, width;
};

// The padding around an image:
//   "VALID"  none
//   "SAME"   so much that the result has ceil(extent / stride) rows and columns; an odd row or column goes to the end
//   {{top, bottom}, {left, right}}  explicit widths
struct Padding2d {
  enum class Kind : uint8_t { valid, same, explicit_widths };

  Padding2d(const char* name) : Padding2d(std::string_view(name)) {}  // NOLINT: reads as an argument
  Padding2d(std::string_view name);                                   // NOLINT; throws Error for any other name
  Padding2d(std::pair<int64_t, int64_t> rows, std::pair<int64_t, int64_t> columns)
      : kind(Kind::explicit_widths), widths{rows.first, rows.second, columns.first, columns.second} {}

  Kind kind = Kind::valid;
  std::array<int64_t, 4> widths = {0, 0, 0, 0};
};

struct Conv2dOptions {
  Extent2d stride = 1;
  Padding2d padding = "SAME";
  Extent2d dilation = 1;  // distance between the taps of a filter
  int64_t groups = 1;     // channels are divided into groups; each filter sees the channels of one group
};

// Cross-correlates x [n, h, w, c] with filters w [kh, kw, c / groups, co]; filters are not flipped. Returns
// [n, oh, ow, co]. Throws Error when the shapes do not fit.
Array conv2d(const Array& x, const Array& w, const Conv2dOptions& options = {});

struct PoolOptions {
  Extent2d window = 2;
  Extent2d stride = 0;  // 0: the size of the window
  Padding2d padding = "VALID";
  bool count_padding = true;  // avg_pool divides by the window size; false: by the number of elements in the image
};

// The maximum, and the mean, over each window of each channel.
Array max_pool(const Array& x, const PoolOptions& options = {});
Array avg_pool(const Array& x, const PoolOptions& options = {});

}  // namespace lockstep
