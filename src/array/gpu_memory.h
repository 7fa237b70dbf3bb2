// Arrays in a GPU's memory. Where CUDA is not built in no array ever lies there. Safe from any thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

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
// Memory there, and copies there, of some bytes that are there and of what is here.
BufferPtr allocate_on_gpu(int64_t bytes, int64_t lane = 0);
BufferPtr copied_on_gpu(const Buffer&, int64_t begin, int64_t bytes, int64_t lane = 0);
BufferPtr copied_to_gpu(const void* here, int64_t bytes, int64_t lane = 0);

// Gives each of these arrays, which are in host memory, its place on the GPU as well, and brings all of them there by
// one copy.
void upload_together(std::span<const Array> arrays);

// The floats of an array on the one GPU in use, on their way to the host while more is queued there.
class FloatsSoon {
 public:
  FloatsSoon();
  ~FloatsSoon();
  FloatsSoon(const FloatsSoon&) = delete;

  // REQUIRES: one_gpu_in_use(), f32, and all that was sent before has been received.
  void send(const Array& array);
  bool is_sent() const;
  // Waits for what was sent, and for nothing that was queued after. Throws as from_gpu().
  std::vector<float> receive();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::detail
