// MPI: a Comm between the processes that mpirun or srun has started. Data travels in MPI messages, and MessageComm
// reduces it in the order of the ranks. So results have the same bits as with any other backend, whatever algorithms
// the MPI library uses.
//
// Initialization. MPI is initialized on first use, unless the program has done so, and finalized when the process exits
// normally. After a group has failed, other processes may be blocked, and MPI_Finalize would wait for them: then MPI is
// not finalized, and mpirun, which notices that, ends the job. A program can call mpi_finalize() itself.
//
// Threads. MPI is called
//   - by any thread, where MPI provides MPI_THREAD_MULTIPLE;
//   - by one thread at a time, where it provides MPI_THREAD_SERIALIZED;
//   - by one dedicated thread, which also initializes MPI, where it provides less.
// A program that initializes MPI itself must request one of the first two. LOCKSTEP_MPI_THREADS (multiple, serialized
// or funneled) makes Lockstep request a lower level. The functions below are safe from any thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/mailbox.h"

namespace lockstep {

struct MpiOptions {
  std::chrono::nanoseconds timeout = Comm::kDefaultTimeout;
  std::string name = "world";
  // The members of the group, by MPI rank, including this process, and a key that is the same on all of them and was
  // never used before. Empty: all processes; they must then make these calls in the same order.
  std::vector<int> processes = {};
  std::string key = {};
};

// Creates a group of processes; called by all of them. Throws Error when MPI provides too low a thread level or is
// finalized already, CommError when MPI fails, and otherwise as Comm::split().
std::unique_ptr<Comm> mpi_comm(const MpiOptions& options = {});

// The rank of this process in MPI_COMM_WORLD, and the size of that. Initializes MPI.
struct MpiRank {
  int rank = 0, size = 1;
};
MpiRank mpi_rank();

// Creates a Mailbox between all processes; called by all of them, in the same order when they create several.
std::unique_ptr<Mailbox> mpi_mailbox();

// Allows MPI to be finalized at exit although a group has failed: all processes have agreed that their work is done.
// Does nothing when MPI is not in use.
void mpi_allow_finalize();

// Finalizes MPI, together with all other processes. Does nothing when MPI was not initialized here, or is finalized.
// REQUIRES: no Comm made by mpi_comm() exists.
void mpi_finalize();

}  // namespace lockstep
