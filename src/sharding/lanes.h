// How arrays are distributed over lanes. Meshes consist of devices, but lanes hold and compute the pieces: a
// lane executes several consecutive devices. For each mesh axis only the part that crosses lanes matters
// here.
//
//   mesh "data" = 8 devices on 2 lanes:   d0 d1 d2 d3 | d4 d5 d6 d7
//                                            lane 0        lane 1
//   LaneAxis{"data", .size = 2, .inside = 4}
//
// Plain values and pure functions, safe to use from any thread.
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
  int64_t inside = 1;  // devices per lane along it
  bool operator==(const LaneAxis&) const = default;
};

// A grid of lanes, row-major. Axes of size 1 are omitted.
struct LaneGrid {
  std::vector<LaneAxis> axes;

  int64_t lanes() const;
  // The axis of this name; null if it does not cross lanes.
  const LaneAxis* find(std::string_view axis) const;
  // The position of a lane along each axis.
  std::vector<int64_t> coordinates(int64_t lane) const;
  bool operator==(const LaneGrid&) const = default;
};

// The grid of `lanes` lanes that execute the devices of a mesh in equal, consecutive blocks. Returns a grid
// without axes if that is impossible (fewer devices than lanes, or a block boundary inside an axis that it
// does not divide); then every lane holds complete arrays.
LaneGrid lane_grid(const Mesh& mesh, int64_t lanes);

// The lane axes that shard each dimension of an array; the first is outermost.
using LaneSpec = std::vector<std::vector<std::string>>;

// The part of a spec that crosses lanes, for an array of this rank.
LaneSpec to_lane_spec(const LaneGrid& grid, const PartitionSpec& spec, size_t rank);

// Converts a list of axes to text as in programs, "data,model", and back.
std::string join_axes(const std::vector<std::string>& axes);
std::vector<std::string> split_axes(std::string_view text);

// The number of lanes along the axes, and a lane's position among them, row-major in the order of the list.
int64_t lanes_along(const LaneGrid& grid, const std::vector<std::string>& axes);
int64_t position_along(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t lane);

// The lanes that differ from `lane` along these axes only, ordered by position_along().
std::vector<int64_t> lane_group(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t lane);

// The range of an extent that position `position` along the axes holds: the union over its devices.
Range lane_range(const LaneGrid& grid, const std::vector<std::string>& axes, int64_t extent, int64_t position);

// The part of an array that a lane holds.
IndexBox lane_box(const LaneGrid& grid, const LaneSpec& lane_spec, const Shape& shape, int64_t lane);

}  // namespace lockstep
