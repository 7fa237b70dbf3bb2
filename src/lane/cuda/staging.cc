#include "lane/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "lane/cuda/cuda_stream.h"

namespace lockstep {
namespace {

constexpr int64_t kSlotBytes = 512 << 10;
constexpr size_t kUploadSlots = 8, kDownloadSlots = 4;
constexpr int64_t kAlignBytes = 256;  // as of separate device allocations
// CUDA stores copies up to this size in the command itself, and does not block.
constexpr int64_t kInlineBytes = 8 << 10;

}  // namespace

void CudaStaging::allocate_slots(SlotRing& ring, size_t count, bool with_device) {
  if (!ring.slots.empty()) return;
  const int64_t bytes = static_cast<int64_t>(count) * kSlotBytes;
  ring.host = lane_.allocate_pinned(bytes);
  if (with_device) ring.device = lane_.allocate(bytes, "copies from the host");
  std::vector<Slot> slots(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t begin = static_cast<int64_t>(i) * kSlotBytes;
    slots[i] = {ring.host->data() + begin, with_device ? ring.device->data() + begin : nullptr, new_cuda_event(),
                new_cuda_event()};
    if (!with_device) continue;
    const auto enqueue_lock = lane_.enqueue_lock();
    check_cuda(cuda().cudaEventRecord(slots[i].used, lane_.stream()), "mark memory as allocated");
  }
  ring.slots = std::move(slots);
  ring.filled = kSlotBytes;  // the first upload moves to the next slot
}

void CudaStaging::to_device(void* to, const void* from, int64_t bytes) {
  lane_.enter();
  {
    const auto enqueue_lock = lane_.enqueue_lock();
    // (A captured copy reads the host memory when the graph is replayed.)
    if (bytes <= kInlineBytes || lane_.capturing()) return lane_.enqueue_copy_to_device(to, from, bytes);
  }
  const std::lock_guard lock(uploads_.mutex);
  if (!copy_stream_)
    check_cuda(cuda().cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking), "create a stream");
  allocate_slots(uploads_, kUploadSlots, true);
  for (int64_t begin = 0; begin < bytes; begin += kSlotBytes)
    upload(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
           std::min(kSlotBytes, bytes - begin));
}

void CudaStaging::ensure_room(int64_t bytes) {
  if (uploads_.filled + bytes <= kSlotBytes) return;
  const size_t next = (uploads_.current + 1) % kUploadSlots;
  // (An event that was never recorded counts as done.)
  lane_.poll_until_done(uploads_.slots[next].copied);
  const auto enqueue_lock = lane_.enqueue_lock();
  check_cuda(cuda().cudaEventRecord(uploads_.slots[uploads_.current].used, lane_.stream()), "mark the end of copies");
  check_cuda(cuda().cudaStreamWaitEvent(copy_stream_, uploads_.slots[next].used, 0), "wait for memory");
  uploads_.current = next;
  uploads_.filled = 0;
}

void CudaStaging::upload(void* to, const void* from, int64_t bytes) {
  ensure_room(bytes);
  const Slot& slot = uploads_.slots[uploads_.current];
  std::byte* const host = slot.host + uploads_.filled;
  std::byte* const device = slot.device + uploads_.filled;
  std::memcpy(host, from, static_cast<size_t>(bytes));
  uploads_.filled += (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  const auto enqueue_lock = lane_.enqueue_lock();
  check_cuda(cuda().cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, copy_stream_),
             "copy to the GPU");
  check_cuda(cuda().cudaEventRecord(slot.copied, copy_stream_), "mark the end of a copy");
  check_cuda(cuda().cudaStreamWaitEvent(lane_.stream(), slot.copied, 0), "wait for a copy");
  lane_.copy(to, device, bytes);
}

void CudaStaging::to_host(void* to, const void* from, int64_t bytes) {
  lane_.enter();
  const std::lock_guard lock(downloads_.mutex);
  allocate_slots(downloads_, kDownloadSlots, false);
  const auto bytes_at = [&](int64_t begin) { return std::min(kSlotBytes, bytes - begin); };
  const auto slot_at = [&](int64_t begin) -> const Slot& {
    return downloads_.slots[static_cast<size_t>(begin / kSlotBytes) % kDownloadSlots];
  };
  const auto enqueue = [&](int64_t begin) {
    if (begin >= bytes) return;
    lane_.enqueue_copy_to_host(slot_at(begin).host, static_cast<const std::byte*>(from) + begin, bytes_at(begin),
                               slot_at(begin).copied);
  };
  constexpr int64_t kAhead = static_cast<int64_t>(kDownloadSlots) * kSlotBytes;
  for (int64_t begin = 0; begin < kAhead; begin += kSlotBytes) enqueue(begin);
  for (int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
    lane_.poll_until_done(slot_at(begin).copied);
    std::memcpy(static_cast<std::byte*>(to) + begin, slot_at(begin).host, static_cast<size_t>(bytes_at(begin)));
    enqueue(begin + kAhead);
  }
}

}  // namespace lockstep
