// Arrays in GPU memory. In a build without CUDA no array is ever there. Safe to call from any thread.
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

// The GPU of a lane of this process; null if the process computes on the CPU. Arrays that are not sharded use
// lane 0.
CudaLane* gpu_of_lane(int64_t lane);
inline CudaLane* gpu_in_use() { return gpu_of_lane(0); }
// Whether this process computes on a GPU and has only one lane.
bool one_gpu_in_use();

// Blocking copy to the host. A device error is broadcast to the other processes and rethrown.
BufferPtr copy_to_host(const Buffer&, int64_t lane = 0);
// Device allocation, device-to-device copy, host-to-device copy.
BufferPtr allocate_on_gpu(int64_t bytes, int64_t lane = 0);
BufferPtr copy_on_gpu(const Buffer&, int64_t begin, int64_t bytes, int64_t lane = 0);
BufferPtr copy_to_gpu(const void* data, int64_t bytes, int64_t lane = 0);

// Uploads all these host arrays with one copy. Afterwards each also has a GPU buffer.
void upload_in_one_copy(std::span<const Array> arrays);

// Reads an array of floats back to the host while the GPU goes on computing. REQUIRES: one_gpu_in_use().
// Belongs to one thread.
class AsyncReadback {
 public:
  AsyncReadback();
  ~AsyncReadback();
  AsyncReadback(const AsyncReadback&) = delete;

  // Enqueues the copy. REQUIRES: the array is f32 and !is_pending().
  void start(const Array& array);
  // Whether a copy was started and not waited for.
  bool is_pending() const;
  // Returns the floats. Waits for the copy, but not for work enqueued after it. Throws like copy_to_host().
  // REQUIRES: is_pending().
  std::vector<float> wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::detail
