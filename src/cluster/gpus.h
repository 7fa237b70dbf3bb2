// Which of the GPUs that a process sees are its own. Pure functions but for the last, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "cluster/detect.h"

namespace lockstep::detail {

// How many of the machine's GPUs CUDA_VISIBLE_DEVICES leaves. As in CUDA, what follows an entry that makes no sense
// does not count.
int visible_gpus(const Environment&, int on_machine);

// Whether the processes of a host see the same GPUs, which they then have to divide, as far as the scheduler tells:
// not when it has bound GPUs to tasks, or has given the job more GPUs on this host than this process sees.
bool gpus_are_shared(const Environment&, int visible);

// The same from what the processes of a host see, by names that are unique on it (UUIDs): all the same, or each its
// own. Throws Error when it is something in between.
bool gpus_are_shared(const std::vector<std::vector<std::string>>& visible_by_local_id);

struct GpuRequest {
  int visible = 0;
  int local_id = 0, local_count = 1;
  bool shared = true;
  std::vector<int> requested = {};  // ClusterInfo::local_device_ids
};

// Indices among the visible GPUs: those requested; else all when the process is alone on its host or sees only its own;
// else its share, in order, as equal as can be. Throws Error when one that is requested is not there, and when there are
// fewer GPUs than processes to share them.
std::vector<int> choose_gpus(const GpuRequest&);

// The same where LOCKSTEP_CUDA_LANES puts lanes on GPUs that others use too: processes may then share one.
std::vector<int> choose_shared_gpus(const GpuRequest&);

// Makes this process compute on those that are its own; it is one of `local_count` of its host, unless the launcher
// says otherwise. Where there are too few it computes on the CPU, or throws Error where a GPU was asked for. On the CPU
// it does nothing. REQUIRES: no device was used.
void select_own_gpus(const ClusterInfo& info, int local_id, int local_count);

}  // namespace lockstep::detail
