// What MPI does for a job that it has started: it carries the control plane's letters and connects processes. In a
// build without MPI the same functions say so. Safe from any thread.
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

bool mpi_is_built_in();

// How the processes of a job reach each other when MPI has started them; of all others empty. Throws Error when MPI is
// needed and not built in, or sees other processes than the launcher has told of.
std::function<std::unique_ptr<Mailbox>()> mail_of(const detail::ClusterInfo& info);

// A group of some processes (empty: all, and the key is of no account); see MpiOptions. Throws as mpi_comm(), and Error
// when MPI is not built in or has not started all of the processes.
std::unique_ptr<Comm> mpi_group(int process_id, int process_count, const std::vector<int>& processes,
                                const std::string& key, std::chrono::nanoseconds timeout);

// The job has ended in order; see mpi_allow_finalize().
void end_mpi_job();

}  // namespace lockstep
