// CudaStaging: a lane's copies from and to pageable host memory, through pinned staging buffers. CUDA's own copies of
// pageable memory would block without a deadline, and could not overlap with kernels. Safe from any thread.
//
// A copy to the device takes two steps, through the slots of `uploads_`:
//
//   pageable --memcpy--> slot.host --copy stream--> slot.device --lane's stream--> destination
//
// The transfer over the bus overlaps with the lane's kernels; the copy on the lane's stream takes 2 us instead of 14.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "hardware/cuda/api.h"
#include "lane/buffer.h"

namespace lockstep {

class CudaStream;

class CudaStaging {
 public:
  explicit CudaStaging(CudaStream& lane) : lane_(lane) {}

  // As CudaStream::to_device() and to_host(), in the lane's stream order.
  void to_device(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);

 private:
  struct Slot {
    std::byte* host = nullptr;     // pinned
    std::byte* device = nullptr;   // uploads only
    cudaEvent_t copied = nullptr;  // `host` may be reused (uploads) or read (downloads)
    cudaEvent_t used = nullptr;    // `device` may be overwritten
  };
  struct SlotRing {
    std::mutex mutex;
    BufferPtr host, device;
    std::vector<Slot> slots;
    size_t current = 0;  // the slot that is being filled
    int64_t filled = 0;  // bytes of it in use
  };

  void allocate_slots(SlotRing& ring, size_t count, bool with_device);
  // Moves to the next upload slot if the current one has less than `bytes` bytes left.
  void ensure_room(int64_t bytes);
  void upload(void* to, const void* from, int64_t bytes);

  CudaStream& lane_;
  cudaStream_t copy_stream_ = nullptr;
  SlotRing uploads_, downloads_;
};

}  // namespace lockstep
