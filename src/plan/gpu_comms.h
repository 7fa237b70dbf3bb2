// The groups in which lanes on GPUs meet (comm/cuda), shared by all programs of the process: making one takes time and
// memory of the GPU. One that has failed is not handed out again. Safe from any thread.
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
  // A group, as far as its lanes are of this process.
  struct Group {
    std::vector<int> lanes;
    std::vector<std::unique_ptr<Comm>> hosts;   // by place in the group; none where they are the World's
    std::map<int, std::shared_ptr<Comm>> made;  // by lane
    std::string failure;
    std::atomic<bool> failed = false;
  };

  static GpuComms& instance();

  // The group of these lanes. `spread`: they are numbered among those of all processes.
  std::shared_ptr<Group> group(const std::vector<int>& lanes, bool spread, const std::string& name);

  // A lane's Comm in it. All its lanes call it, each on its own thread, and meet. `host`: the World's, where it is
  // spread. As long as the group lives.
  Comm* of(Group& group, int lane, CudaLane& cuda, Comm* host);

  // Makes all groups fail.
  void abort(const std::string& reason);
  // Forgets those of the World.
  void leave();

 private:
  GpuComms();

  std::mutex mutex_;
  std::map<std::pair<bool, std::vector<int>>, std::shared_ptr<Group>> groups_;
};

}  // namespace lockstep
