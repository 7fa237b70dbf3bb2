// Compares a program on random lanes with random lane specs against the same program on one lane. For tests.
#pragma once

#include <fmt/format.h>

#include "passes/on_lanes.h"
#include "passes/random_placement.h"
#include "passes/random_program.h"
#include "passes/schedule.h"

namespace lockstep {

// Describes the first difference; empty if there is none. With options the lanes run the scheduled program.
inline std::string difference_on_lanes(const RandomProgram& r, const LaneGrid& grid, const LaneConstraints& in,
                                       const LaneConstraints& out, const CollectiveScheduleOptions* options = nullptr) {
  const HostArrays wanted = eager(r.program, r.inputs);
  // Inline bodies first, as after tracing, so that their equations can be sharded too.
  const Program p = simplify(inline_bodies(r.program, Inline::early));
  const Placement placement = place(p, grid, in, out);
  std::function<Program(const Program&)> change;
  if (options)
    change = [schedule = schedule_collectives(partition(p, grid, placement, 0), *options)](const Program& lane) {
      return apply_schedule(lane, schedule);
    };
  const std::vector<HostArrays> got = run_on_lanes(p, grid, placement, r.inputs, change);
  for (size_t k = 0; k < wanted.size(); ++k) {
    for (size_t lane = 0; lane < got.size(); ++lane) {
      const IndexBox box =
          lane_box(grid, placement.lane_specs[p.outputs[k]], wanted[k].type.shape, static_cast<int64_t>(lane));
      const HostArray piece = slice_box(wanted[k], box);
      if (piece.type != got[lane][k].type) return fmt::format("output {} on lane {} has a different type", k, lane);
      for (int64_t i = 0; i < piece.size(); ++i) {
        const double a = got[lane][k].get(i), b = piece.get(i);
        if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 4 * r.error[k]) continue;
        return fmt::format("element {} of output {} on lane {} is {}, expected {} within {}", i, k, lane, a, b,
                           4 * r.error[k]);
      }
    }
  }
  return "";
}
inline std::string difference_on_lanes(const RandomProgram& r, uint32_t seed,
                                       const CollectiveScheduleOptions* options = nullptr) {
  RandomPlacement random(seed);
  const LaneGrid grid = random.grid();
  LaneConstraints in, out;
  for (ValueId id : r.program.inputs) in.push_back(random.lane_spec(grid, r.program.types[id].shape));
  for (ValueId id : r.program.outputs) out.push_back(random.lane_spec(grid, r.program.types[id].shape));
  return difference_on_lanes(r, grid, in, out, options);
}

}  // namespace lockstep
