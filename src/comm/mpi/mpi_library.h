// The plug-in liblockstep_mpi.so, and with it the MPI library: loaded by the first call. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "comm/mpi/mpi_functions.h"

namespace lockstep {

struct MpiLibrary {
  const MpiFunctions* functions = nullptr;  // null: not available
  std::string file = {};                    // the plug-in
  std::string version = {};                 // "Open MPI v4.1.4"
  std::string failure = {};                 // why MPI is not available, with the remedy; empty: it is
};

// Loads the plug-in on the first call and keeps it. Files that it may be, in this order: in the folder of the program
// or of the library that Lockstep is in, in lib/lockstep beside that folder, and where the dynamic linker finds it
// (LD_LIBRARY_PATH, the rpath of the program). Does not initialize MPI.
const MpiLibrary& mpi_library();

// The functions of mpi_library(). Throws Error with its failure.
const MpiFunctions& mpi_functions();

// What mpi_library() tries: the first of these files that exists and the names without a folder.
MpiLibrary load_mpi_library(const std::vector<std::string>& files);

}  // namespace lockstep
