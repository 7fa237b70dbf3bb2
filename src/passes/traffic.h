// What lanes send each other, by the ring model: each of n lanes sends only to its neighbor, and an array goes around
// in n parts. Pure functions, safe from any thread.
#pragma once

#include <string>

#include "program/program.h"
#include "sharding/lanes.h"

namespace lockstep {

// The traffic of one lane: bytes sent, and messages that follow one another.
struct Traffic {
  int64_t bytes = 0;
  int64_t steps = 0;
  bool operator==(const Traffic&) const = default;
};

// Zero for equations that are not collectives. A collective with a start and a done equation counts at its start.
Traffic traffic(const Program& lane, const Eqn& eqn, const LaneGrid& grid);
Traffic traffic(const Program& lane, const LaneGrid& grid);

// One line for each collective, in order: "lane_all_reduce data: 6 arrays, 0.9 MB, 2 steps". The size is what a lane
// sends; ", overlapped" follows if the lane computes in the meantime.
std::string traffic_text(const Program& lane, const LaneGrid& grid);

}  // namespace lockstep
