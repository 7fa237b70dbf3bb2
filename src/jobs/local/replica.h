// The command line, environment and files of local replicas. Safe from any thread; pure functions, except for the
// functions on ports and prepare_attempt().
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "jobs/local/state.h"

namespace lockstep {

// The variables of the user's environment that replicas inherit: paths, locale, threads, devices, and those of JAX, XLA
// and Lockstep. Variables that describe another job or look like secrets are excluded, because the result is stored on
// disk.
std::map<std::string, std::string> inherited_variables(const detail::Environment& environment);

// The size limit of a log file in bytes: LOCKSTEP_LOG_LIMIT, else kDefaultLogLimit. Throws Error for an invalid value.
int64_t log_limit(const std::map<std::string, std::string>& environment);

// Seconds between SIGTERM and SIGKILL: the pod template's terminationGracePeriodSeconds, else 30.
int64_t termination_grace(const Job& job);

// What one replica runs. `attempt_folder` contains the token; `port` is the coordinator's.
ReplicaSpec replica_spec(const LocalJob& job, int index, const std::string& attempt_folder, const PodFolder& folder,
                         int port, const std::vector<int>& cpus);

// Whether a process on this machine could listen on the port now.
bool is_port_free(int port);

// Returns `wanted` if that port is free on this machine and not in `taken`, else another such port. Throws IoError.
int choose_port(int wanted, const std::set<int>& taken);

// Atomically creates the folder of the job's current attempt, with a new token and a spec.json for every replica.
// Returns the coordinator's port. Throws IoError.
int prepare_attempt(const LocalJob& job, const StateDir& state, const std::set<int>& taken_ports, FileSystem& files);

}  // namespace lockstep
