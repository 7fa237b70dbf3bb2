// Comms between GPU lanes. Their memory is memory of the lane's GPU, and their operations are ordered with the work on
// the lane's stream: an operation reads after all work that was enqueued before its start, and work that is enqueued
// after wait() sees its result. So wait() may return before the operation has run. A failure after that is thrown by a
// wait for the GPU (CudaStream::wait), which has a deadline.
//
// Each uses a Comm of the host between the same lanes, and one of two ways to move data:
//   - NCCL, where all lanes have it and no two lanes share a GPU: operations run on a stream of their own, concurrently
//     with the lane's work;
//   - staging, otherwise: data is copied through pinned host memory. The lane waits for the input, and the host Comm
//     does the operation.
//
// Thread safety: as Comm.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/comm.h"
#include "lane/cuda/cuda_stream.h"

namespace lockstep {

// What the lanes tell each other to choose between NCCL and staging.
struct GpuFacts {
  std::array<uint8_t, 16> uuid{};
  int32_t nccl = 0;  // version, such as 22809; 0: not available, or disabled
};

// Why lanes with these GPUs cannot use NCCL; empty when they can. The same on all lanes.
std::string why_no_nccl(std::span<const GpuFacts> lanes);

// Creates a Comm that uses NCCL where possible, and staging otherwise. Called by all ranks of `host`, which outlives
// the result and all groups split from it. LOCKSTEP_NCCL=off on any rank makes all of them use staging. Throws as an
// operation does.
std::unique_ptr<Comm> cuda_comm(Comm& host, CudaStream& lane);

// Creates a Comm that stages data through host memory. Needs no communication.
std::unique_ptr<Comm> staged_comm(Comm& host, CudaStream& lane);

// Creates a Comm that uses NCCL. Returns null, on all ranks, when NCCL cannot be started on one of them; `why_not` then
// has the reason, or states that another rank failed. Called by all ranks. REQUIRES: why_no_nccl() is empty.
std::unique_ptr<Comm> nccl_comm(Comm& host, CudaStream& lane, std::string& why_not);

namespace detail {

// The same, owning the host Comm: for groups that were split off.
std::unique_ptr<Comm> staged_comm(std::unique_ptr<Comm> host, CudaStream& lane);

// Such as 22809; 0: not available, or too old.
int32_t nccl_version();

// Keeps the timeout of a Comm equal to that of its host Comm: whichever of the two was set last counts.
class SharedTimeout {
 public:
  SharedTimeout(const Comm& own, Comm& host) : own_(own), host_(host), seen_(own.timeout()) {}
  // Passes a new timeout of the Comm on to the host Comm, and returns the timeout of both.
  std::chrono::nanoseconds get() {
    if (own_.timeout() != seen_) host_.set_timeout(seen_ = own_.timeout());
    return host_.timeout();
  }

 private:
  const Comm& own_;
  Comm& host_;
  std::chrono::nanoseconds seen_;
};

}  // namespace detail

}  // namespace lockstep
