// Arrays in a GPU's memory. Where CUDA is not built in no array ever lies there. Safe from any thread.
#pragma once

#include "array/node.h"
#include "lane/buffer.h"

namespace lockstep {
class CudaLane;
}

namespace lockstep::detail {

// The GPU that this process computes on; null: the CPU.
CudaLane* gpu_in_use();

// A copy in host memory, which waits for what computes it.
BufferPtr from_gpu(const Buffer&);
// Memory there, and a copy there.
BufferPtr allocate_on_gpu(int64_t bytes);
BufferPtr copied_on_gpu(const Buffer&);

}  // namespace lockstep::detail
