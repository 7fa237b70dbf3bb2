// How arrays lie on lanes. Devices are cut from meshes; what really holds and computes a piece is a lane, which carries
// several devices in a row. Of each mesh axis only the part that crosses lanes matters here: 8 devices along "data" on
// 2 lanes are an axis of size 2 with 4 devices inside. Plain values, safe from any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/sharding.h"

namespace lockstep {

// The part of a mesh axis that crosses lanes.
struct LaneAxis {
  std::string name;
  int64_t size = 1;    // lanes along it
  int64_t inside = 1;  // devices of one lane along it
  bool operator==(const LaneAxis&) const = default;
};

// Lanes in an n-d grid, row-major. Axes of size 1 are left out.
struct LaneGrid {
  std::vector<LaneAxis> axes;

  int64_t lanes() const;
  // Null when no lane boundary crosses an axis of that name.
  const LaneAxis* find(std::string_view axis) const;
  // The position of a lane along each axis.
  std::vector<int64_t> coordinates(int64_t lane) const;
  bool operator==(const LaneGrid&) const = default;
};

// The grid that `lanes` lanes make of a mesh whose devices they carry in equal rows, in mesh order. A mesh of which no
// such grid can be made (fewer devices than lanes, or rows that end in the middle of an axis they do not divide) gives
// a grid without axes: every lane then holds everything.
LaneGrid lane_grid(const Mesh& mesh, int64_t lanes);

// The lane axes that cut each dimension, the first being outermost.
using LaneCuts = std::vector<std::vector<std::string>>;

// What of a spec crosses lanes, for an array of this rank.
LaneCuts lane_cuts(const LaneGrid& grid, const PartitionSpec& spec, size_t rank);

// "data,model": a list of axes as it is written in programs; and back.
std::string join_axes(const std::vector<std::string>& axes);
std::vector<std::string> split_axes(std::string_view text);

// How many lanes the axes span, and which of them, row-major in the order of the list, a lane is.
int64_t lanes_along(const LaneGrid& grid, const std::vector<std::string>& axes);
int64_t position_along(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t lane);

// The lanes that differ from `lane` along the axes only, in the order of position_along.
std::vector<int64_t> lane_group(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t lane);

// The part of an extent that position `position` along the axes holds: what its devices hold together.
Range lane_range(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t extent, int64_t position);

// The box of an array that a lane holds.
IndexBox lane_box(const LaneGrid& grid, const LaneCuts& cuts, const Shape& shape, int64_t lane);

}  // namespace lockstep
