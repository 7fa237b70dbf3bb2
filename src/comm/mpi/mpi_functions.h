// MpiFunctions: the MPI calls that Lockstep makes, as a table of C functions with integers for MPI's handles. The types
// of <mpi.h> differ between MPI libraries, so only the plug-in liblockstep_mpi.so includes it: the program loads the
// plug-in when it needs MPI (mpi_library.h), and starts on machines without MPI. Used by both; plain data.
#pragma once

#include <cstdint>

namespace lockstep {

// An MPI_Comm, MPI_Request or MPI_Message. The null request is 0.
using MpiHandle = std::intptr_t;

inline constexpr int kMpiSuccess = 0;
inline constexpr int kMpiAnyTag = -1;

// Thread levels, in the order of MPI's constants.
enum class MpiThreads : int { single, funneled, serialized, multiple };

// A message that has arrived: its sender is an MPI rank.
struct MpiArrival {
  int source = 0, tag = 0, bytes = 0;
};

// All functions return an MPI error code. Data are bytes.
struct MpiFunctions {
  int interface;  // kMpiInterface of the plug-in

  int (*library_version)(char* text, int size);  // before initialization, too; a text that ends with '\0'
  int (*initialized)(int* is);
  int (*finalized)(int* is);
  int (*query_thread)(MpiThreads* provided);
  int (*init_thread)(MpiThreads wanted, MpiThreads* provided);
  int (*finalize)();

  // Duplicates MPI_COMM_WORLD; the errors of the copy are returned.
  int (*duplicate_world)(MpiHandle* made);
  int (*place)(MpiHandle comm, int* rank, int* size, int* max_tag);
  int (*describe_error)(int code, char* text, int size);

  int (*send)(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request);
  int (*receive)(void* data, int bytes, int from, int tag, MpiHandle comm, MpiHandle* request);
  // Tests the request up to `tests` times. Sets `arrival` if it is done; null: not needed.
  int (*test)(MpiHandle* request, int tests, int* done, MpiArrival* arrival);
  int (*cancel)(MpiHandle* request);
  int (*free_request)(MpiHandle* request);

  // Whether a message with this tag has arrived, from any rank; receive_message() then receives it.
  int (*find_message)(int tag, MpiHandle comm, int* arrived, MpiHandle* message, MpiArrival* arrival);
  int (*receive_message)(void* data, int bytes, MpiHandle* message);
};

// Increased by each change of MpiFunctions.
inline constexpr int kMpiInterface = 1;

// The symbol that the plug-in exports, and its type.
inline constexpr const char* kMpiPluginSymbol = "lockstep_mpi_functions";
using MpiPlugin = const MpiFunctions* (*)();

}  // namespace lockstep
