// Drawings of a sharding: which devices hold which piece of an array of one or two dimensions (or of a scalar). Safe
// from any thread.
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
  bool color = false;  // cells coloured by ANSI sequences
  int width = 80;      // columns of text to stay within where the device numbers allow it
};

// Text, each line ended by a newline. Where pieces are uneven, each cell also has its range of indices. Throws Error
// when the shape has more than two dimensions or the sharding does not fit it.
std::string visualize_sharding(const NamedSharding&, const Shape&, const VisualizeOptions& = {});

// The same as a standalone SVG picture, `width` pixels wide, cells drawn in proportion to their extents. Throws as
// above, and unless width >= 100.
std::string sharding_svg(const NamedSharding&, const Shape&, int width = 640);

}  // namespace lockstep
