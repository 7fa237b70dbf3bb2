// GPU work of the lane collectives (ops/lane_ops.h) besides the communication. Enqueued on the lane.
#pragma once

#include <cstdint>

namespace lockstep {

class CudaLane;

void copy_on_gpu(CudaLane* lane, void* to, const void* from, int64_t bytes);

}  // namespace lockstep
