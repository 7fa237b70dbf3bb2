// Drawings of a sharding: which devices hold which part of an array of at most two dimensions. Pure
// functions, safe to call from any thread.
//
//   ┌─────────┬─────────┐
//   │  CPU 0  │  CPU 1  │
//   ├─────────┼─────────┤
//   │  CPU 2  │  CPU 3  │
//   └─────────┴─────────┘
#pragma once

#include <string>

#include "lockstep/sharding.h"

namespace lockstep {

struct VisualizeOptions {
  bool color = false;  // color cells with ANSI escape sequences
  int width = 80;      // maximum columns of text, where the device numbers allow it
};

// Draws a sharding as text; each line ends with a newline. If shards are uneven, each cell also shows its
// index ranges. Throws Error when the shape has more than two dimensions or the sharding does not fit it.
std::string visualize_sharding(const NamedSharding&, const Shape&, const VisualizeOptions& = {});

// Same as a standalone SVG image, `width` pixels wide, with cells in proportion to their extents. Throws
// Error also unless width >= 100.
std::string sharding_svg(const NamedSharding&, const Shape&, int width = 640);

}  // namespace lockstep
