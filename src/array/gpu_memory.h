// Arrays in a GPU's memory. Where CUDA is not built in no array ever lies there. Safe from any thread.
#pragma once

#include <span>

#include "array/node.h"
#include "lane/buffer.h"

namespace lockstep {
class CudaLane;
}

namespace lockstep::detail {

// The GPU of a lane of this process; null: it computes on the CPU. Of the first, what is not cut is computed on.
CudaLane* gpu_of_lane(int64_t lane);
inline CudaLane* gpu_in_use() { return gpu_of_lane(0); }
// Whether this process computes on a GPU, and has no other lanes.
bool one_gpu_in_use();

// A copy in host memory, which waits for what computes it: throws what that throws, told to other processes.
BufferPtr from_gpu(const Buffer&, int64_t lane = 0);
// Memory there, and copies there, of what is there and of what is here.
BufferPtr allocate_on_gpu(int64_t bytes, int64_t lane = 0);
BufferPtr copied_on_gpu(const Buffer&, int64_t lane = 0);
BufferPtr copied_to_gpu(const void* here, int64_t bytes, int64_t lane = 0);

// Gives each of these arrays, which are in host memory, its place on the GPU as well, and brings all of them there by
// one copy.
void upload_together(std::span<const Array> arrays);

}  // namespace lockstep::detail
