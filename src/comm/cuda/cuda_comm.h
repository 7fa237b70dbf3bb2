// Comms of GPUs' lanes: the memory they are given is the lane's GPU's, and their operations are steps in the order of
// its stream. What was queued before an operation is started is done before the operation reads; what is queued after
// wait() has returned finds the result. So wait() may return while the lanes have yet to meet. A failure after that is
// told to whoever waits for the GPU (CudaLane::wait), which is never endless.
//
// Each stands on a Comm of the host, in which the same lanes meet. They go
//   - by NCCL, where it is there on all of them and no two share a GPU: operations run beside the lane's own work, on a
//     stream of their own;
//   - else through memory of the host: a lane waits for what the operation reads, and the host's Comm does the rest.
//
// Threads: as Comm.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/comm.h"
#include "lane/cuda/cuda_lane.h"

namespace lockstep {

// What a lane says of its GPU before it meets others there.
struct GpuFacts {
  std::array<uint8_t, 16> uuid{};
  int32_t nccl = 0;  // its version, as 22809; 0: it is not there, or not to be used
};

// Why lanes with these GPUs cannot meet by NCCL; empty: they can. One answer for all of them.
std::string why_no_nccl(std::span<const GpuFacts> lanes);

// By NCCL where that can be. Called by all ranks of `host`, which stays their meeting place, and outlives the result
// and what is split from it. LOCKSTEP_NCCL=off, on any of them, keeps all to the host's memory. Throws as an operation
// does.
std::unique_ptr<Comm> cuda_comm(Comm& host, CudaLane& lane);

// Through memory of the host. Called by any rank, for itself.
std::unique_ptr<Comm> staged_comm(Comm& host, CudaLane& lane);

// By NCCL; null, on all ranks, where it cannot be started on one of them: `why_not` says what happened there, or that
// it happened elsewhere. Called by all. REQUIRES: why_no_nccl() is empty.
std::unique_ptr<Comm> nccl_comm(Comm& host, CudaLane& lane, std::string& why_not);

namespace detail {

// Over a Comm of their own: groups that were split off.
std::unique_ptr<Comm> staged_comm(std::unique_ptr<Comm> host, CudaLane& lane);

// As 22809; 0: it is not there, or too old.
int32_t nccl_version();

// A Comm whose time runs out with that of another, whichever of the two was set last.
class SharedTimeout {
 public:
  SharedTimeout(const Comm& own, Comm& host) : own_(own), host_(host), seen_(own.timeout()) {}
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
