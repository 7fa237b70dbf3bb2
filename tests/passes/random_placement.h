// Random grids of lanes, and random lane specs of values on them. For tests.
#pragma once

#include <algorithm>
#include <optional>
#include <random>

#include "passes/partition.h"

namespace lockstep {

// Makes grids of 1, 2, 3, 4, 6 or 7 lanes with one or several devices each, and lane specs of a value on them.
class RandomPlacement {
 public:
  explicit RandomPlacement(uint32_t seed) : random_(seed) {}

  LaneGrid grid() {
    static const std::vector<LaneGrid> grids = {{},
                                                {{{"x", 2, 1}}},
                                                {{{"x", 2, 3}}},
                                                {{{"x", 3, 1}}},
                                                {{{"x", 3, 2}}},
                                                {{{"x", 4, 1}}},
                                                {{{"x", 4, 2}}},
                                                {{{"x", 7, 1}}},
                                                {{{"x", 7, 2}}},
                                                {{{"x", 2, 1}, {"y", 2, 1}}},
                                                {{{"x", 2, 2}, {"y", 2, 3}}},
                                                {{{"x", 3, 1}, {"y", 2, 2}}}};
    return grids[random_() % grids.size()];
  }
  std::optional<LaneSpec> lane_spec(const LaneGrid& grid, const Shape& shape) {
    if (random_() % 3 == 0) return std::nullopt;
    LaneSpec out(shape.size());
    if (shape.empty()) return out;
    std::vector<LaneAxis> axes = grid.axes;
    std::shuffle(axes.begin(), axes.end(), random_);
    for (const LaneAxis& axis : axes)
      if (random_() % 3 != 0) out[random_() % shape.size()].push_back(axis.name);
    return out;
  }

 private:
  std::mt19937 random_;
};

}  // namespace lockstep
