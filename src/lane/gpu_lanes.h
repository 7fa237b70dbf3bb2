// Which GPUs the lanes of this process compute on: one lane for each GPU that is its own. LOCKSTEP_CUDA_LANES=n makes n
// lanes instead, several of them on one GPU where there are fewer, which is how programs over several GPUs are tested
// on one. Safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// The GPU of each lane, of those that are the process's own. `said` is LOCKSTEP_CUDA_LANES. Where it says nothing there
// are as many lanes as GPUs, or the most of them that divide the devices equally. Throws Error for a number of lanes
// that is none. REQUIRES: own is not empty.
std::vector<int> gpus_of_lanes(const std::vector<int>& own, int devices, const std::optional<std::string>& said);

// How many devices a process with these GPUs has where nobody says so: as many as lanes. Throws as gpus_of_lanes()
// does.
int devices_of_gpus(const std::vector<int>& own, const std::optional<std::string>& said);

// LOCKSTEP_CUDA_LANES of this process; nothing where it is empty.
std::optional<std::string> said_gpu_lanes();

// The visible GPUs that are this process's own, before one is used: where it shares a host with others. None: it
// computes on the CPU, and `why_none` says why.
void set_own_gpus(std::vector<int> gpus, std::string why_none = "");
struct OwnGpus {
  std::vector<int> gpus;
  std::string why_none;
};
// What was set; nothing: all that are visible.
std::optional<OwnGpus> own_gpus();

}  // namespace lockstep
