// Resharder: moves a value from one layout on lanes to another by the cheapest sequence of slices, all-to-alls and
// all-gathers. A pending reduction is done by an all-reduce, or by a reduce-scatter if the new layout is sharded by an
// axis over which the value is partial. Immutable, safe from any thread.
#pragma once

#include "ops/lane_ops.h"
#include "passes/partition.h"

namespace lockstep {

// How lanes hold a value.
struct LaneLayout {
  LaneSpec lane_spec;
  std::vector<std::string> partial;  // the axes over which the value is partial
  PendingReduction kind = PendingReduction::none;
  bool operator==(const LaneLayout&) const = default;
};

class Resharder {
 public:
  Resharder(const LaneGrid& grid, int64_t lane) : grid_(grid), lane_(lane) {}

  // Moves `x`, this lane's piece of a value of shape `global`, to the lane spec `to`, and updates its layout. Does
  // pending reductions if the new lane spec requires them or if they are cheaper before the move; `layout.partial`
  // lists the others.
  Value move(Value x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const;
  // Does all pending reductions.
  Value reduce(Value x, LaneLayout& layout) const;

  // `x`, this lane's shard of dimension d, whose extent is `extent` on all lanes along `axes`, between the elements of
  // the neighbors' shards that `halo` says. The lanes at the ends have no elements on that side.
  Value with_halo(Value x, size_t d, const std::vector<std::string>& axes, int64_t extent, Halo halo) const;

  LaneGroup group(const std::vector<std::string>& axes) const;

 private:
  // The extents held by each position along `more`, within this lane's position along `before`.
  std::vector<int64_t> counts(const std::vector<std::string>& before, const std::vector<std::string>& more,
                              int64_t extent) const;
  // Whether each piece of the axes before + more lies within a piece of the axes `before`, on the same lane.
  bool nested(const std::vector<std::string>& before, const std::vector<std::string>& more, int64_t extent) const;
  // Whether before + more can be an intermediate step from the axes `before` to the axes `to`: each piece lies within
  // the previous one. REQUIRES: `to` begins with before + more.
  bool is_intermediate(std::vector<std::string> before, const std::vector<std::string>& more,
                       const std::vector<std::string>& to, int64_t extent) const;

  Value reduce_over(Value x, LaneLayout& layout, const std::vector<std::string>& axes) const;
  // Each does one step towards the lane spec `to` and returns true, or returns false if no such step is possible.
  bool scatter(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const;
  bool slice_one(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const;
  bool exchange(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const;
  bool gather(Value& x, const Shape& global, LaneLayout& layout, const LaneSpec& to) const;

  const LaneGrid& grid_;
  int64_t lane_;
};

}  // namespace lockstep
