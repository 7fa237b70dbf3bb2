// MPI: a Comm between the processes that mpirun or srun has started together. Values travel in MPI's messages; they are
// combined here, in the order of the ranks, so results have the same bits as with any other backend, whatever
// algorithms an MPI has.
//
// MPI is initialized on first use, unless the program has done so, and finalized when the process ends normally. Where
// it allows calls from several threads (MPI_THREAD_MULTIPLE) they are made by whoever waits; where from one at a time
// (MPI_THREAD_SERIALIZED), these take turns; where from one thread only, one that has initialized it makes all calls. A
// program that initializes it allows one of the first two. LOCKSTEP_MPI_THREADS (multiple, serialized, funneled) asks
// MPI for less than it has.
//
// After a group has failed, others may be stuck where MPI cannot be ended together with them: then it is not finalized,
// and mpirun, which sees that, ends the job. A program that knows better calls mpi_finalize().
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/mail.h"

namespace lockstep {

struct MpiOptions {
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
  std::string name = "world";
  // A group of these processes only, of which this is one, under a key that is the same on all of them and was never
  // used before. Empty: all processes, which then call it in the same order when there are several.
  std::vector<int> processes = {};
  std::string key = {};
};

// A group of processes, called by all of them. Throws Error when MPI allows too few threads or is finalized already,
// CommError when MPI fails, and what Comm::split() throws.
std::unique_ptr<Comm> mpi_comm(const MpiOptions& options = {});

// Which process of how many this one is, for MPI. Initializes it.
struct MpiPlace {
  int rank = 0, size = 1;
};
MpiPlace mpi_place();

// A way for letters between all processes; called by all of them, in the same order when there are several.
std::unique_ptr<Mail> mpi_mail();

// All processes have agreed that their work is done: whatever group has failed, MPI is finalized when they end. Nothing
// to do when it is not in use.
void mpi_done();

// Ends MPI, together with all other processes. Nothing to do when it was not initialized here, or is ended already.
// REQUIRES: no Comm made by mpi_comm() is left.
void mpi_finalize();

}  // namespace lockstep
