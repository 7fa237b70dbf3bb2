// Convolution and pooling of images [n, h, w, c]. Safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/array.h"

namespace lockstep {

// One number for height and width alike, or one for each.
struct Extent2d {
  Extent2d(int64_t both) : height(both), width(both) {}  // NOLINT: reads as an argument
  Extent2d(int64_t h, int64_t w) : height(h), width(w) {}

  int64_t height, width;
};

// "VALID": none. "SAME": as much as makes the result ceil(extent / stride) high and wide, the odd row or column at the
// end. Or the number of rows above and below and of columns left and right.
struct Padding2d {
  enum class Kind : uint8_t { valid, same, explicit_widths };

  Padding2d(const char* name) : Padding2d(std::string_view(name)) {}  // NOLINT: reads as an argument
  Padding2d(std::string_view name);                                   // NOLINT; throws Error for another name
  Padding2d(std::pair<int64_t, int64_t> rows, std::pair<int64_t, int64_t> columns)
      : kind(Kind::explicit_widths), widths{rows.first, rows.second, columns.first, columns.second} {}

  Kind kind = Kind::valid;
  std::array<int64_t, 4> widths = {0, 0, 0, 0};
};

struct Conv2dOptions {
  Extent2d stride = 1;
  Padding2d padding = "SAME";
  Extent2d dilation = 1;  // distance between the filter's taps
  int64_t groups = 1;     // channels in so many groups, each seen by its share of the filters only
};

// x [n, h, w, c] with filters w [kh, kw, c / groups, co], not flipped: [n, oh, ow, co].
Array conv2d(const Array& x, const Array& w, const Conv2dOptions& options = {});

struct PoolOptions {
  Extent2d window = 2;
  Extent2d stride = 0;  // 0: as the window
  Padding2d padding = "VALID";
  bool count_padding = true;  // avg_pool divides by the size of the window; false: by the part of it inside the image
};

// The greatest element, and the mean, of each window of each channel.
Array max_pool(const Array& x, const PoolOptions& options = {});
Array avg_pool(const Array& x, const PoolOptions& options = {});

}  // namespace lockstep
