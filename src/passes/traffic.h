// What lanes send each other, by the ring model: each of n lanes talks to its neighbours only, and an array goes around
// in n pieces. Pure functions, safe from any thread.
#pragma once

#include <string>

#include "program/program.h"
#include "sharding/lanes.h"

namespace lockstep {

// Of one lane: what it sends, and how many messages follow one another.
struct Traffic {
  int64_t bytes = 0;
  int64_t steps = 0;
  bool operator==(const Traffic&) const = default;
};

// Nothing for equations in which lanes do not meet. What is done in two steps counts where it begins.
Traffic traffic(const Program& lane, const Eqn& eqn, const LaneGrid& grid);
Traffic traffic(const Program& lane, const LaneGrid& grid);

// One line for each collective, in order: "lane_all_reduce data: 6 arrays, 0.9 MB, 2 steps". The size is what a lane
// sends; ", overlapped" follows where the lane computes meanwhile.
std::string traffic_text(const Program& lane, const LaneGrid& grid);

}  // namespace lockstep
