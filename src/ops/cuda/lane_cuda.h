// What the rows with which lanes meet (ops/lane_ops.h) do on a GPU besides meeting. Queued on the lane.
#pragma once

#include <cstdint>

namespace lockstep {

class CudaLane;

void copy_on_gpu(CudaLane* lane, void* to, const void* from, int64_t bytes);

}  // namespace lockstep
