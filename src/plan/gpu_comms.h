// GpuComms: the groups of lanes on GPUs (comm/cuda), shared by all programs of the process, because making a group
// takes time and device memory. A group that has failed is replaced by a new one. Safe from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/comm.h"

namespace lockstep {

class CudaLane;

class GpuComms {
 public:
  // A group, with the Comms of those of its lanes that are in this process.
  struct Group {
    std::vector<int> lanes;
    std::vector<std::unique_ptr<Comm>> hosts;    // by rank: the host Comm under each of `comms`; empty: the World's
    std::map<int, std::shared_ptr<Comm>> comms;  // by lane
    std::string failure;                         // the reason, once `failed`
    std::atomic<bool> failed = false;
  };

  static GpuComms& instance();

  // Returns the group of these lanes. `spread`: the lanes are numbered among those of all processes.
  std::shared_ptr<Group> group(const std::vector<int>& lanes, bool spread, const std::string& name);

  // Returns a lane's Comm in a group. The first call is collective: all lanes of the group call it, each on its own
  // thread. `host` is the World's Comm if the group is spread, else null. Valid as long as the group.
  Comm* of(Group& group, int lane, CudaLane& cuda, Comm* host);

  // Makes all groups fail.
  void abort(const std::string& reason);
  // Drops the groups that span processes.
  void leave();

 private:
  GpuComms();

  std::mutex mutex_;
  std::map<std::pair<bool, std::vector<int>>, std::shared_ptr<Group>> groups_;
};

}  // namespace lockstep
