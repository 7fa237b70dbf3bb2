// The groups in which lanes meet: for each list of axes of a grid, those lanes that differ along them only. Lanes of
// one process have groups of their own; where the grid spans processes, they are the World's. Made when first asked
// for, by whichever lane; safe from any thread. Each Comm handed out belongs to its lane's thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "plan/gpu_comms.h"
#include "sharding/lanes.h"

namespace lockstep {

class LaneComms {
 public:
  // `spread`: the lanes of the grid are those of all processes, or the first few of each.
  LaneComms(LaneGrid grid, bool spread) : grid_(std::move(grid)), spread_(spread) {}
  LaneComms(const LaneComms&) = delete;
  LaneComms& operator=(const LaneComms&) = delete;

  // A lane of this process, by its place in the grid. As long as this object lives.
  Comm* of(int64_t lane, const std::string& axes);

  // The same for a lane on a GPU, called by its thread: its memory is the GPU's. Returns when all lanes of the group
  // have called it. Throws as an operation does.
  Comm* of(int64_t lane, const std::string& axes, CudaLane& cuda);

  // Makes every lane that waits for another throw CommAborted. Nothing works afterwards.
  void abort(const std::string& reason);
  // Whether a group of lanes on GPUs has failed since it was handed out, maybe in another program.
  bool failed();

 private:
  // As the World numbers them, where they are spread.
  std::vector<int> lanes_of(int64_t lane, const std::string& axes) const;

  LaneGrid grid_;
  bool spread_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<Comm>>> comms_;  // by axes: one for each lane
  std::vector<std::shared_ptr<GpuComms::Group>> on_gpus_;
  bool aborted_ = false;
};

}  // namespace lockstep
