// MPI for a job that MPI has started: it carries the control plane's messages and connects the data plane. Without
// liblockstep_mpi.so or an MPI library these functions throw Error. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/detect.h"
#include "comm/comm.h"
#include "comm/mailbox.h"

namespace lockstep {

// Whether MPI can be loaded on this machine (mpi_library.h). Does not initialize it.
bool mpi_is_available();

// Returns a factory for the control plane's transport over MPI; empty if the control plane uses gRPC. Throws Error if
// MPI is needed but cannot be loaded, or if MPI's rank and size differ from the launcher's.
std::function<std::unique_ptr<Mailbox>()> mailbox_factory(const detail::ClusterInfo& info);

// Creates a group of processes (empty: all, and `key` is ignored); see MpiOptions. Throws as mpi_comm(), and Error if
// MPI cannot be loaded or did not start all of the processes.
std::unique_ptr<Comm> mpi_group(int process_id, int process_count, const std::vector<int>& processes,
                                const std::string& key, std::chrono::nanoseconds timeout);

// Call after a clean shutdown of the job; see mpi_allow_finalize().
void end_mpi_job();

}  // namespace lockstep
