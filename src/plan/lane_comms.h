// LaneComms: the groups of lanes for collectives. For each list of axes of a grid a group has the lanes that differ
// only along these axes. Groups within one process are made here; if the grid spans processes, they are the World's.
// Groups are made on first use. Safe from any thread; each returned Comm belongs to its lane's thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.h"
#include "plan/device_comms.h"
#include "sharding/lanes.h"

namespace lockstep {

class LaneComms {
 public:
  // `spread`: the grid spans all processes, with the same number of lanes of each.
  LaneComms(LaneGrid grid, bool spread) : grid_(std::move(grid)), spread_(spread) {}
  LaneComms(const LaneComms&) = delete;
  LaneComms& operator=(const LaneComms&) = delete;

  // Returns the Comm of a lane of this process, given by its index in the grid. Valid as long as this object.
  Comm* of(int64_t lane, const std::string& axes);

  // The same for the memory of the lane, which executes the lane of this index. If that is not host memory, this is a
  // collective call on the lane's thread: returns when all lanes of the group have called it. Throws like a collective.
  Comm* of(int64_t index, const std::string& axes, Lane& lane);

  // Makes every lane that waits for another throw CommAborted. No collective works afterwards.
  void abort(const std::string& reason);
  // Whether a group of device memory that this object uses has failed, possibly in another program.
  bool failed();

 private:
  // The lanes of a group; if spread, numbered as the World numbers them.
  std::vector<int> lanes_of(int64_t lane, const std::string& axes) const;

  LaneGrid grid_;
  bool spread_;
  std::mutex mutex_;
  std::map<std::pair<std::string, int64_t>, std::unique_ptr<Comm>> comms_;  // by axes and lane
  std::vector<std::shared_ptr<DeviceComms::Group>> device_groups_;
  bool aborted_ = false;
};

}  // namespace lockstep
