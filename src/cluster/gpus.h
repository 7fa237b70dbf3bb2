// Assigns the visible GPUs of a host to its processes. All functions but the last are pure; all are thread-safe.
#pragma once

#include <string>
#include <vector>

#include "cluster/detect.h"

namespace lockstep::detail {

// The number of GPUs that CUDA_VISIBLE_DEVICES leaves visible. As in CUDA, an invalid entry ends the list.
int visible_gpus(const Environment&, int on_machine);

// Whether the processes of a host see the same GPUs and must divide them, according to Slurm's variables: false if
// Slurm has bound GPUs to tasks, or has given the job more GPUs on this host than this process sees.
bool gpus_are_shared(const Environment&, int visible);

// The same, from the GPUs (UUIDs) that each process of a host sees: true if all see the same, false if no two see the
// same one. Throws Error otherwise.
bool gpus_are_shared(const std::vector<std::vector<std::string>>& visible_by_local_id);

struct GpuRequest {
  int visible = 0;
  int local_id = 0, local_count = 1;
  bool shared = true;
  std::vector<int> requested = {};  // ClusterInfo::local_device_ids
};

// Indices of visible GPUs for a process: those requested; else all of them, if the process is alone on its host or GPUs
// are not shared; else its contiguous share, as equal as possible. Throws Error if a requested GPU does not exist, or
// if there are fewer GPUs than processes that share them.
std::vector<int> choose_gpus(const GpuRequest&);

// The same, for LOCKSTEP_CUDA_LANES: several processes may use the same GPU.
std::vector<int> choose_shared_gpus(const GpuRequest&);

// Makes this process use its share of the GPUs. `local_id` and `local_count` apply unless the launcher sets them. If
// there are too few GPUs, the process uses the CPU, or throws Error if a GPU was requested. No effect on the CPU
// platform. REQUIRES: no device was used.
void select_own_gpus(const ClusterInfo& info, int local_id, int local_count);

}  // namespace lockstep::detail
