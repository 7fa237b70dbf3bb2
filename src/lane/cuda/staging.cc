#include "lane/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "lane/cuda/cuda_lane.h"

namespace lockstep {
namespace {

constexpr int64_t kSlotBytes = 512 << 10;
constexpr size_t kUp = 8, kDown = 4;
constexpr int64_t kApart = 256;  // as memory of its own begins
// CUDA keeps so little with what it queues, and waits for nothing.
constexpr int64_t kLittle = 8 << 10;

}  // namespace

void CudaStaging::make(Slots& slots, size_t count, bool both) {
  if (!slots.all.empty()) return;
  const int64_t bytes = static_cast<int64_t>(count) * kSlotBytes;
  slots.here = lane_.allocate_pinned(bytes);
  if (both) slots.there = lane_.allocate(bytes, "what comes from the host");
  std::vector<Slot> all(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t begin = static_cast<int64_t>(i) * kSlotBytes;
    all[i] = {slots.here->data() + begin, both ? slots.there->data() + begin : nullptr, new_cuda_event(),
              new_cuda_event()};
    if (!both) continue;
    const auto queueing = lane_.queueing();
    check_cuda(cuda().cudaEventRecord(all[i].used, lane_.stream()), "mark memory as there");
  }
  slots.all = std::move(all);
  slots.filled = kSlotBytes;  // none of them has been entered
}

void CudaStaging::to_device(void* to, const void* from, int64_t bytes) {
  lane_.enter();
  {
    const auto queueing = lane_.queueing();
    // (What is recorded is copied when it is replayed, from where it is then.)
    if (bytes <= kLittle || lane_.recording()) return lane_.send_to_device(to, from, bytes);
  }
  const std::lock_guard lock(up_.mutex);
  if (!stream_) check_cuda(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  make(up_, kUp, true);
  for (int64_t begin = 0; begin < bytes; begin += kSlotBytes)
    send(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
         std::min(kSlotBytes, bytes - begin));
}

void CudaStaging::find_room(int64_t bytes) {
  if (up_.filled + bytes <= kSlotBytes) return;
  const size_t next = (up_.at + 1) % kUp;
  // (An event that nothing was recorded in is done.)
  lane_.until(up_.all[next].copied);
  const auto queueing = lane_.queueing();
  check_cuda(cuda().cudaEventRecord(up_.all[up_.at].used, lane_.stream()), "mark the end of copies");
  check_cuda(cuda().cudaStreamWaitEvent(stream_, up_.all[next].used, 0), "wait for memory");
  up_.at = next;
  up_.filled = 0;
}

void CudaStaging::send(void* to, const void* from, int64_t bytes) {
  find_room(bytes);
  const Slot& slot = up_.all[up_.at];
  std::byte* const here = slot.here + up_.filled;
  std::byte* const there = slot.there + up_.filled;
  std::memcpy(here, from, static_cast<size_t>(bytes));
  up_.filled += (bytes + kApart - 1) / kApart * kApart;
  const auto queueing = lane_.queueing();
  check_cuda(cuda().cudaMemcpyAsync(there, here, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
             "copy to the GPU");
  check_cuda(cuda().cudaEventRecord(slot.copied, stream_), "mark the end of a copy");
  check_cuda(cuda().cudaStreamWaitEvent(lane_.stream(), slot.copied, 0), "wait for a copy");
  lane_.copy(to, there, bytes);
}

void CudaStaging::to_host(void* to, const void* from, int64_t bytes) {
  lane_.enter();
  const std::lock_guard lock(down_.mutex);
  make(down_, kDown, false);
  const auto some_at = [&](int64_t begin) { return std::min(kSlotBytes, bytes - begin); };
  const auto slot_at = [&](int64_t begin) -> const Slot& {
    return down_.all[static_cast<size_t>(begin / kSlotBytes) % kDown];
  };
  const auto ask = [&](int64_t begin) {
    if (begin >= bytes) return;
    lane_.send_to_host(slot_at(begin).here, static_cast<const std::byte*>(from) + begin, some_at(begin),
                       slot_at(begin).copied);
  };
  constexpr int64_t kAhead = static_cast<int64_t>(kDown) * kSlotBytes;
  for (int64_t begin = 0; begin < kAhead; begin += kSlotBytes) ask(begin);
  for (int64_t begin = 0; begin < bytes; begin += kSlotBytes) {
    lane_.until(slot_at(begin).copied);
    std::memcpy(static_cast<std::byte*>(to) + begin, slot_at(begin).here, static_cast<size_t>(some_at(begin)));
    ask(begin + kAhead);
  }
}

}  // namespace lockstep
