// DeviceComms: the groups of lanes whose memory is not the host's (Lane::device_comm), shared by all programs of a
// runtime, because making a group takes time and device memory. A group that has failed is replaced by a new one. Safe
// from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/world.h"
#include "lane/lane.h"

namespace lockstep {

class DeviceComms {
 public:
  // A group, with the Comms of those of its lanes that are in this process.
  struct Group {
    std::vector<int> lanes;
    std::vector<std::unique_ptr<Comm>> hosts;    // by rank: the host Comm under each of `comms`; empty: the World's
    std::map<int, std::shared_ptr<Comm>> comms;  // by lane
    std::string failure;                         // the reason, once `failed`
    std::atomic<bool> failed = false;
  };

  // Those of the current runtime.
  static DeviceComms& current();
  DeviceComms();
  ~DeviceComms();

  // Returns the group of these lanes. `spread`: the lanes are numbered among those of all processes.
  std::shared_ptr<Group> group(const std::vector<int>& lanes, bool spread, const std::string& name);

  // Returns a lane's Comm in a group. The first call is collective: all lanes of the group call it, each on its own
  // thread. `host` is the World's Comm if the group is spread, else null. Valid as long as the group.
  Comm* of(Group& group, int index, Lane& lane, Comm* host);

  // Makes all groups fail.
  void abort(const std::string& reason);
  // Drops the groups that span processes.
  void leave();

 private:
  World& world_;
  std::mutex mutex_;
  std::map<std::pair<bool, std::vector<int>>, std::shared_ptr<Group>> groups_;
};

}  // namespace lockstep
