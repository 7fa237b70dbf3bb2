// CudaStaging: a lane's copies from and to memory of the host's that CUDA does not know. They go by pinned memory of
// its own: CUDA would wait for the GPU itself, for ever where that hangs, and what comes from the host would not come
// while the GPU computes.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "lane/buffer.h"
#include "lane/cuda/api.h"

namespace lockstep {

class CudaLane;

// Safe from any thread.
class CudaStaging {
 public:
  explicit CudaStaging(CudaLane& lane) : lane_(lane) {}

  // In the order of what is queued on the lane, as of CudaLane.
  void to_device(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);

 private:
  // Pinned memory; of that for copies to the GPU, as much of the GPU's. Such a copy is in two steps: from `here` to
  // `there` on a stream of its own, beside what the lane computes; and from `there` to its place on the lane's stream,
  // which takes 2 us of it and not 14.
  struct Slot {
    std::byte* here = nullptr;
    std::byte* there = nullptr;
    cudaEvent_t copied = nullptr;  // `here` may be written, or read
    cudaEvent_t used = nullptr;    // `there` may be written
  };
  struct Slots {
    std::mutex mutex;
    BufferPtr here, there;
    std::vector<Slot> all;
    size_t at = 0;       // the one that is being filled
    int64_t filled = 0;  // so many bytes of it
  };

  void make(Slots& slots, size_t count, bool both);
  // Goes on to the next slot to send where this one has not so many bytes left.
  void find_room(int64_t bytes);
  void send(void* to, const void* from, int64_t bytes);

  CudaLane& lane_;
  cudaStream_t stream_ = nullptr;  // of the first steps
  Slots up_, down_;
};

}  // namespace lockstep
