// A program on random lanes in random layouts against the same on one. For tests.
#pragma once

#include <fmt/format.h>

#include "passes/on_lanes.h"
#include "passes/random_cuts.h"
#include "passes/random_program.h"
#include "passes/schedule.h"

namespace lockstep {

// What is wrong, or nothing. With options: of the program as it is scheduled.
inline std::string difference_on_lanes(const RandomProgram& r, const LaneGrid& grid, const Said& in, const Said& out,
                                       const ScheduleOptions* options = nullptr) {
  const HostArrays wanted = eager(r.program, r.inputs);
  // As it is traced: bodies first, so that their equations can be cut too.
  const Program p = simplify(inline_bodies(r.program, Inline::early));
  const Placement placement = place(p, grid, in, out);
  std::function<Program(const Program&)> change;
  if (options)
    change = [schedule = decide(partition(p, grid, placement, 0), *options)](const Program& lane) {
      return apply(lane, schedule);
    };
  const std::vector<HostArrays> got = run_on_lanes(p, grid, placement, r.inputs, change);
  for (size_t k = 0; k < wanted.size(); ++k) {
    for (size_t lane = 0; lane < got.size(); ++lane) {
      const IndexBox box =
          lane_box(grid, placement.cuts[p.outputs[k]], wanted[k].type.shape, static_cast<int64_t>(lane));
      const HostArray piece = cut_out(wanted[k], box);
      if (piece.type != got[lane][k].type) return fmt::format("output {} on lane {} has another type", k, lane);
      for (int64_t i = 0; i < piece.size(); ++i) {
        const double a = got[lane][k].get(i), b = piece.get(i);
        if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 4 * r.error[k]) continue;
        return fmt::format("element {} of output {} on lane {} is {}, wanted {}, within {}", i, k, lane, a, b,
                           4 * r.error[k]);
      }
    }
  }
  return "";
}
inline std::string difference_on_lanes(const RandomProgram& r, uint32_t seed,
                                       const ScheduleOptions* options = nullptr) {
  RandomCuts random(seed);
  const LaneGrid grid = random.grid();
  Said in, out;
  for (ValueId id : r.program.inputs) in.push_back(random.cuts(grid, r.program.types[id].shape));
  for (ValueId id : r.program.outputs) out.push_back(random.cuts(grid, r.program.types[id].shape));
  return difference_on_lanes(r, grid, in, out, options);
}

}  // namespace lockstep
