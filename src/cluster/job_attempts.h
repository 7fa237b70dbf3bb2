// The supervisors that start a process again after a failure: `lockstep launch`, the runner of local jobs, Slurm. With
// them a run recognizes itself after a restart. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "base/os/environment.h"

namespace lockstep {

// A supervisor that starts the processes of a job again after a failure: launch, a runner of jobs, or Slurm.
struct JobAttempt {
  std::string id;       // equal in all attempts, such as "slurm-main-4711.0"; different for each job
  std::string attempt;  // "0", "1", ...
  // Whether the same command may run several times in one attempt, as in the script of a Slurm job. A run of the same
  // attempt is then another run, not an earlier try of this one.
  bool may_repeat = false;
};

// The variable with the jobs of a process: `id:attempt` for each, the outermost first, separated by spaces.
inline constexpr const char* kJobVariable = "LOCKSTEP_JOB";
// The value of that variable for processes that a supervisor starts in this environment.
std::string job_variable(const detail::Environment& environment, const std::string& id, const std::string& attempt);

// The jobs of a process, the innermost first. Entries that are not `id:attempt` are ignored.
std::vector<JobAttempt> job_attempts(const detail::Environment& environment);

// Whether this process is in a pod of a Kubernetes job. The pod's disk is lost when the pod ends.
bool is_in_job_pod(const detail::Environment& environment);

}  // namespace lockstep
