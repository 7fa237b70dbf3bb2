#include "plan/lane_comms.h"

#include "comm/in_process.h"
#include "comm/world.h"

namespace lockstep {

Comm* LaneComms::of(int64_t lane, const std::string& axes) {
  if (spread_) {
    const std::vector<int64_t> group = lane_group(grid_, split_axes(axes), lane);
    World& world = World::instance();
    return &world.group(lane - world.first_lane(), {group.begin(), group.end()}, axes);
  }
  const std::lock_guard lock(mutex_);
  auto& comms = comms_[axes];
  if (comms.empty()) {
    comms.resize(static_cast<size_t>(grid_.lanes()));
    for (int64_t first = 0; first < grid_.lanes(); ++first) {
      if (comms[static_cast<size_t>(first)]) continue;
      const std::vector<int64_t> group = lane_group(grid_, split_axes(axes), first);
      std::vector<std::unique_ptr<Comm>> made = in_process_comms(static_cast<int>(group.size()), axes);
      for (size_t i = 0; i < group.size(); ++i) comms[static_cast<size_t>(group[i])] = std::move(made[i]);
    }
  }
  return comms[static_cast<size_t>(lane)].get();
}

void LaneComms::abort(const std::string& reason) {
  if (spread_) return World::instance().abort(reason, true);
  const std::lock_guard lock(mutex_);
  for (auto& [axes, comms] : comms_)
    for (auto& comm : comms) comm->abort(reason);
}

}  // namespace lockstep
