#include "plan/lane_comms.h"

#include "comm/in_process.h"

namespace lockstep {

Comm* LaneComms::of(int64_t lane, const std::string& axes) {
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
  const std::lock_guard lock(mutex_);
  for (auto& [axes, comms] : comms_)
    for (auto& comm : comms) comm->abort(reason);
}

}  // namespace lockstep
