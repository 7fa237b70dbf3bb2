// What the replicas of a job are told when they run as processes of this machine. Pure functions but for prepare(),
// safe from any thread.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "jobs/local/state.h"

namespace lockstep {

// Of an environment, what is kept with a job and passed on to its replicas: paths, the language, threads, devices, JAX
// and XLA, and variables of lockstep's own; nothing that names another job, and nothing that looks like a secret. Never
// more than that: it lies on the disk.
std::map<std::string, std::string> kept_variables(const detail::Environment& environment);

// How large a log may grow: LOCKSTEP_LOG_LIMIT. Throws Error for what is no number of bytes.
int64_t log_limit(const std::map<std::string, std::string>& environment);

// Seconds between SIGTERM and SIGKILL: the pod template's terminationGracePeriodSeconds, else 30.
int64_t grace_of(const Job& job);

// What one replica runs. `attempt_folder` is where the token is; the coordinator listens at `port`.
ReplicaSpec replica_spec(const LocalJob& job, int index, const std::string& attempt_folder, const PodFolder& folder,
                         int port, const std::vector<int>& cpus);

// Whether a program of this machine could listen at the port now.
bool is_port_free(int port);

// The wanted port where it is free on this machine and not among `taken`, else another one that is.
int choose_port(int wanted, const std::set<int>& taken);

// Makes the folder of the job's present attempt, whole or not at all: a new token, and a spec.json for every replica.
// Returns the coordinator's port. Throws IoError.
int prepare_attempt(const LocalJob& job, const StateDir& state, const std::set<int>& taken_ports, FileSystem& files);

}  // namespace lockstep
