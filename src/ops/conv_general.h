// Convolutions of any geometry, composed of conv2d and of rows that move elements: in one dimension as in two with a
// height of 1; in three with the taps along the first dimension as channels, so that all products are one conv2d.
// A Builder belongs to one thread.
#pragma once

#include <utility>
#include <vector>

#include "program/builder.h"

namespace lockstep {

// The windows of a dimension: x has (extent - 1) * base_dilation + 1 elements once base_dilation - 1 elements of
// padding are inserted between adjacent ones, then `low` and `high` elements around it; negative ones are cut off.
// Windows begin `stride` apart and have `window` elements, window_dilation apart.
struct WindowDim {
  int64_t window = 1, stride = 1, low = 0, high = 0, base_dilation = 1, window_dilation = 1;

  // The number of windows in `extent` elements; 0 if not even one fits.
  int64_t count(int64_t extent) const;
  // How many elements a window spans, and how many x has with padding.
  int64_t span() const { return (window - 1) * window_dilation + 1; }
  int64_t padded(int64_t extent) const { return (extent == 0 ? 0 : (extent - 1) * base_dilation + 1) + low + high; }
};

// Cross-correlates x [n, spatial..., c] with filters w [window..., c / groups, co] to [n, out..., co]. `dims` has the
// geometry of each spatial dimension, at most three. REQUIRES: dims[i].window is the extent of w.
Value conv_general(Value x, Value w, const std::vector<WindowDim>& dims, int64_t groups);

// The patches [n, out..., c * windows] that windows of x [n, spatial..., c] cover. The channels come first, then the
// elements of the window in row-major order.
Value window_patches(Value x, const std::vector<WindowDim>& dims);

// x with padding `value` as `dims` say for its dimensions `first`, first + 1, ...: dilated, then padded or cut off.
Value pad_windows(Value x, Value value, size_t first, const std::vector<WindowDim>& dims);

// The elements that window element `tap` has in all windows of dimension d of x, which has its padding.
Value tap_of(Value x, size_t d, const WindowDim& dim, int64_t tap);

}  // namespace lockstep
