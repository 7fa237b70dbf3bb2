#include "ops/cuda/lane_cuda.h"

#include "lane/cuda/cuda_lane.h"

namespace lockstep {

void copy_on_gpu(CudaLane* lane, void* to, const void* from, int64_t bytes) { lane->copy(to, from, bytes); }

}  // namespace lockstep
