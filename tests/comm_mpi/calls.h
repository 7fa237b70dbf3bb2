// Counts the MPI calls of this process. Safe from any thread.
#pragma once

namespace lockstep {

struct MpiCalls {
  int all = 0;
  int from_other_threads = 0;  // than the one that initialized MPI
};

MpiCalls mpi_calls();

}  // namespace lockstep
