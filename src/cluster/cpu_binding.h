// Which CPUs the processes of a job use on their host. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/data_plane.h"
#include "cluster/detect.h"
#include "lane/cpus.h"

namespace lockstep {

// The index of a process among the processes of its host that may use the same CPUs, and their number. A launcher that
// binds each process to CPUs of its own leaves it alone: {0, 1}.
LocalRank cpu_rank(const std::vector<ProcessFacts>& facts, int process);

// The share of the calling thread's CPUs that this process uses. All of them if the user has set the number of threads.
CpuShare own_cpu_share(const std::vector<ProcessFacts>& facts, int process);

struct CpuBinding {
  std::string launcher;          // ClusterInfo::method
  std::optional<int> processes;  // on this host
  int bound = 0;                 // CPUs that this process may use
  int usable = 0;                // CPUs that all processes of this host may use together
  int threads_per_core = 1;      // CPUs of a core
};
// Returns what a launcher that binds processes does wrong, as "fact; remedy", if it leaves a process fewer CPUs than its
// share of those of the host; else "".
std::string narrow_binding(const CpuBinding& binding);

// The same for this process, in the place of its job that was detected or is given. "" if it divides the CPUs of its host
// with other processes.
std::string narrow_binding();
std::string narrow_binding(const detail::ClusterInfo& info, const detail::Environment& environment);

}  // namespace lockstep
