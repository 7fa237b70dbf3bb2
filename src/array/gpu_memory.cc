#include "array/gpu_memory.h"

#include <mutex>

#include "base/check.h"
#include "lockstep/devices.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "lane/cuda/cuda_lane.h"
#endif

namespace lockstep::detail {

#ifdef LOCKSTEP_WITH_CUDA
CudaLane* gpu_in_use() { return platform() == Platform::cuda ? &CudaLane::local() : nullptr; }

BufferPtr from_gpu(const Buffer& there) {
  BufferPtr here = allocate(there.size());
  CudaLane::local().to_host(here->data(), there.data(), there.size());
  return here;
}

BufferPtr allocate_on_gpu(int64_t bytes) { return CudaLane::local().allocate(bytes); }

BufferPtr copied_on_gpu(const Buffer& there) {
  BufferPtr copy = CudaLane::local().allocate(there.size());
  CudaLane::local().copy(copy->data(), there.data(), there.size());
  return copy;
}

BufferPtr gpu_buffer_of(const Array& array, const Type& type, const char* wanted_by) {
  CudaLane& lane = CudaLane::local();
  const auto uploaded = [&](const Buffer& here) {
    BufferPtr there = lane.allocate(here.size());
    lane.to_device(there->data(), here.data(), here.size());
    return there;
  };
  if (array.defined()) {
    Node& node = *array.node();
    if (node.kind == Node::Kind::literal) return uploaded(*literal_buffer(node, type.dtype));
    if (node.kind == Node::Kind::concrete) {
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      if (!node.gpu) {
        BufferPtr there = uploaded(*buffer_of(array, wanted_by));
        node.gpu = std::move(there);
      }
      return node.gpu;
    }
  }
  return uploaded(*buffer_of(array, wanted_by));  // which throws
}
#else
namespace {
[[noreturn]] void missing() { LOCKSTEP_CHECK(false, "a GPU is used in a build without CUDA"); }
}  // namespace
CudaLane* gpu_in_use() {
  platform();  // throws where a GPU was asked for
  return nullptr;
}
BufferPtr from_gpu(const Buffer&) { missing(); }
BufferPtr allocate_on_gpu(int64_t) { missing(); }
BufferPtr copied_on_gpu(const Buffer&) { missing(); }
BufferPtr gpu_buffer_of(const Array&, const Type&, const char*) { missing(); }
#endif

}  // namespace lockstep::detail
