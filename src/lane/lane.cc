#include "lane/lane.h"

#include "base/runtime_parts.h"
#include "base/runtime_settings.h"
#include "lane/gpu_report.h"
#include "lockstep/devices.h"

namespace lockstep {

BufferPtr Lane::upload(const BufferPtr& host) {
  if (can_use(*host)) return host;
  BufferPtr copy = allocate(host->size());
  copy_from_host(copy->data(), host->data(), host->size());
  return copy;
}

BufferPtr Lane::download(const BufferPtr& buffer) {
  if (buffer->space() != MemorySpace::device) return buffer;
  BufferPtr copy = lockstep::allocate(buffer->size());
  copy_to_host(copy->data(), buffer->data(), buffer->size());
  return copy;
}

int64_t Lane::memory_in_use() const { return Allocator::host().stats().in_use; }

BufferPtr Lane::copy_of(const Buffer& buffer, int64_t begin, int64_t bytes) {
  BufferPtr out = allocate(bytes);
  copy(out->data(), buffer.data() + begin, bytes);
  return out;
}

namespace {

struct LaneCount {
  const int64_t count =
      platform() == Platform::cuda ? gpu_lane_count() : detail::runtime_option(&RuntimeOptions::cpu_lanes);
};

}  // namespace

int64_t local_lane_count() { return detail::runtime_part<LaneCount>().count; }

}  // namespace lockstep
