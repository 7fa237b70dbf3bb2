// Translates operations of Comm into calls of NCCL. Safe from any thread, for different communicators.
#pragma once

#include "comm/operation.h"
#include "hardware/cuda/nccl.h"

namespace lockstep::detail {

#ifdef LOCKSTEP_WITH_NCCL
// Enqueues the NCCL calls of the operation on the stream, as one NCCL group. Returns the first error of a call;
// ncclInProgress while a non-blocking communicator has not finished the calls. `rank` is the own rank.
// REQUIRES: the kind is not barrier or split.
ncclResult_t enqueue_nccl_calls(const Operation& operation, int rank, ncclComm_t comm, cudaStream_t stream);
#endif

}  // namespace lockstep::detail
