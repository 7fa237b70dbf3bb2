// The geometry of windows, from the options of functions on arrays. `what`, the name of the function, begins every
// error. Pure functions, safe from any thread.
#pragma once

#include "lockstep/windows.h"
#include "ops/conv_general.h"

namespace lockstep::detail {

// A number for each of `n` dimensions, all at least 1. `name` is that of the option.
std::vector<int64_t> extents_of(const char* what, const char* name, const WindowExtents& given, size_t n);

struct WindowGeometry {
  std::vector<int64_t> window;
  const WindowExtents& strides;
  const WindowPadding& padding;
  const WindowExtents& base_dilation;
  const WindowExtents& window_dilation;
};

// The windows over dimensions of these extents. Throws Error when a window is larger than its padded dimension.
std::vector<WindowDim> window_dims(const char* what, const std::vector<int64_t>& extents, const WindowGeometry&);

}  // namespace lockstep::detail
