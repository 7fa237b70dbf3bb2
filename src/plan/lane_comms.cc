#include "plan/lane_comms.h"

#include <algorithm>

#include "base/check.h"
#include "comm/in_process.h"
#include "comm/world.h"
#include "lockstep/error.h"

namespace lockstep {

std::vector<int> LaneComms::lanes_of(int64_t lane, const std::string& axes) const {
  const std::vector<int64_t> group = lane_group(grid_, split_axes(axes), lane);
  if (!spread_) return {group.begin(), group.end()};
  const World& world = World::current();
  const int64_t per_process = grid_.lanes() / world.process_count();
  std::vector<int> out;
  for (const int64_t member : group)
    out.push_back(static_cast<int>(member / per_process * world.local_lanes() + member % per_process));
  return out;
}

Comm* LaneComms::of(int64_t lane, const std::string& axes) {
  if (spread_) {
    World& world = World::current();
    const int64_t per_process = grid_.lanes() / world.process_count();
    return &world.group(lane % per_process, lanes_of(lane, axes), axes);
  }
  const std::lock_guard lock(mutex_);
  const std::pair own(axes, lane);
  if (!comms_.contains(own)) {
    const std::vector<int64_t> group = lane_group(grid_, split_axes(axes), lane);
    std::vector<std::unique_ptr<Comm>> made = in_process_comms(static_cast<int>(group.size()), axes);
    auto next = made.begin();
    for (const int64_t member : group) comms_[{axes, member}] = std::move(*next++);
  }
  return comms_.at(own).get();
}

Comm* LaneComms::of(int64_t index, const std::string& axes, Lane& lane) {
  if (lane.info().space == MemorySpace::host) return of(index, axes);
  const std::vector<int> lanes = lanes_of(index, axes);
  Comm* const host = spread_ ? of(index, axes) : nullptr;
  std::shared_ptr<DeviceComms::Group> group;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw CommAborted(fmt::format("\"{}\": lane {} stops because another lane has failed", axes, index));
    group = DeviceComms::current().group(lanes, spread_, axes);
    device_groups_.push_back(group);
  }
  const auto rank = static_cast<size_t>(position_along(grid_, split_axes(axes), index));
  return DeviceComms::current().of(*group, lanes[rank], lane, host);
}

bool LaneComms::failed() {
  const std::lock_guard lock(mutex_);
  return std::any_of(device_groups_.begin(), device_groups_.end(),
                     [](const auto& group) { return group->failed.load(); });
}

void LaneComms::abort(const std::string& reason) {
  if (spread_) return World::current().abort(reason, true);
  bool on_devices = false;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    on_devices = !device_groups_.empty();
  }
  if (on_devices) DeviceComms::current().abort(reason);
  const std::lock_guard lock(mutex_);
  for (const auto& [lane, comm] : comms_) comm->abort(reason);
}

}  // namespace lockstep
