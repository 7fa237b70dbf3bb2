// A plug-in for MPI with another interface than that of this version.
#include "comm/mpi/mpi_functions.h"

namespace {
constexpr lockstep::MpiFunctions kForeign = {.interface = lockstep::kMpiInterface + 1,
                                             .library_version = nullptr,
                                             .initialized = nullptr,
                                             .finalized = nullptr,
                                             .query_thread = nullptr,
                                             .init_thread = nullptr,
                                             .finalize = nullptr,
                                             .duplicate_world = nullptr,
                                             .place = nullptr,
                                             .describe_error = nullptr,
                                             .send = nullptr,
                                             .receive = nullptr,
                                             .test = nullptr,
                                             .cancel = nullptr,
                                             .free_request = nullptr,
                                             .find_message = nullptr,
                                             .receive_message = nullptr};
}

extern "C" __attribute__((visibility("default"))) const lockstep::MpiFunctions* lockstep_mpi_functions() {
  return &kForeign;
}
