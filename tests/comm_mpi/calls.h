// The calls of MPI that this process has made. Safe from any thread.
#pragma once

namespace lockstep {

struct MpiCalls {
  int all = 0;
  int strays = 0;  // by threads other than the one that has initialized MPI
};

MpiCalls mpi_calls();

}  // namespace lockstep
