#include "array/gpu_memory.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "comm/world.h"
#include "lane/lane.h"
#include "lockstep/devices.h"
#include "lockstep/error.h"
#ifdef LOCKSTEP_WITH_CUDA
#include "lane/cuda/cuda_lane.h"
#endif

namespace lockstep::detail {

#ifdef LOCKSTEP_WITH_CUDA
CudaLane* gpu_of_lane(int64_t lane) { return platform() == Platform::cuda ? &CudaLane::of(lane) : nullptr; }

bool one_gpu_in_use() { return platform() == Platform::cuda && World::current().local_lanes() == 1; }

namespace {

// Runs `wait`; broadcasts a CommError to the other processes and rethrows it, or its cause.
template <class Wait>
void wait_and_broadcast_error(const Wait& wait) {
  try {
    wait();
  } catch (const CommError& error) {
    World::current().abort(error.what(), true);
    World::current().throw_cause(error);
    throw;
  }
}

}  // namespace

BufferPtr copy_to_host(const Buffer& there, int64_t lane) {
  BufferPtr here = allocate(there.size());
  wait_and_broadcast_error([&] { CudaLane::of(lane).to_host(here->data(), there.data(), there.size()); });
  return here;
}

struct AsyncReadback::State {
  BufferPtr here;   // pinned, reused
  BufferPtr there;  // the source, until the copy has been waited for
  cudaEvent_t arrived = nullptr;

  ~State() {
    if (!arrived) return;
    CudaLane::local().enter();
    // The copy must have ended before its pinned memory is freed.
    try {
      if (there) CudaLane::local().wait_for(arrived);
    } catch (const std::exception&) {  // already reported, or the memory is leaked on purpose (GpuDeadline)
    }
    cuda().cudaEventDestroy(arrived);
  }
};

AsyncReadback::AsyncReadback() : state_(std::make_unique<State>()) {}
AsyncReadback::~AsyncReadback() = default;

bool AsyncReadback::is_pending() const { return state_->there != nullptr; }

void AsyncReadback::start(const Array& array) {
  State& s = *state_;
  LOCKSTEP_CHECK(!s.there && array.dtype() == DType::f32, "one f32 array at a time");
  CudaLane& lane = CudaLane::local();
  const std::lock_guard lock(CpuLane::local().run_mutex());  // another thread may be recording what it queues
  if (!s.arrived) {
    lane.enter();
    s.arrived = new_cuda_event();
  }
  BufferPtr there = gpu_buffer_of(array, array.type(), "readback");
  if (!s.here || s.here->size() < there->size()) s.here = lane.allocate_pinned(there->size());
  lane.enqueue_copy_to_host(s.here->data(), there->data(), there->size(), s.arrived);
  s.there = std::move(there);
}

std::vector<float> AsyncReadback::wait() {
  State& s = *state_;
  LOCKSTEP_CHECK(s.there, "no readback is pending");
  const BufferPtr there = std::move(s.there);
  s.there = nullptr;
  wait_and_broadcast_error([&] { CudaLane::local().wait_for(s.arrived); });
  const auto* const first = reinterpret_cast<const float*>(s.here->data());
  return {first, first + there->size() / 4};
}

BufferPtr allocate_on_gpu(int64_t bytes, int64_t lane) { return CudaLane::of(lane).allocate(bytes); }

BufferPtr copy_on_gpu(const Buffer& there, int64_t begin, int64_t bytes, int64_t lane) {
  BufferPtr copy = CudaLane::of(lane).allocate(bytes);
  CudaLane::of(lane).copy(copy->data(), there.data() + begin, bytes);
  return copy;
}

BufferPtr copy_to_gpu(const void* here, int64_t bytes, int64_t lane) {
  BufferPtr there = CudaLane::of(lane).allocate(bytes);
  CudaLane::of(lane).to_device(there->data(), here, bytes);
  return there;
}

void upload_in_one_copy(std::span<const Array> arrays) {
  const std::lock_guard lock(CpuLane::local().run_mutex());  // another thread may be recording what it queues
  constexpr int64_t kApart = 256;                            // as memory of its own begins
  std::vector<int64_t> begins;
  int64_t size = 0;
  for (const Array& array : arrays) {
    begins.push_back(size);
    size += (array.node()->buffer->size() + kApart - 1) / kApart * kApart;
  }
  const BufferPtr here = allocate(size);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Buffer& each = *arrays[i].node()->buffer;
    std::copy_n(each.data(), each.size(), here->data() + begins[i]);
  }
  const BufferPtr there = copy_to_gpu(here->data(), size);
  for (size_t i = 0; i < arrays.size(); ++i) {
    Node& node = *arrays[i].node();
    node.gpu = Allocator::host().adopt(there->data() + begins[i], node.buffer->size(), new BufferPtr(there),
                                       [](void* whole) { delete static_cast<BufferPtr*>(whole); });
  }
}

BufferPtr gpu_buffer_of(const Array& array, const Type& type, const char* wanted_by) {
  const auto uploaded = [&](const Buffer& here) { return copy_to_gpu(here.data(), here.size()); };
  if (array.defined()) {
    Node& node = *array.node();
    if (node.kind == Node::Kind::literal) return uploaded(*literal_buffer(node, type.dtype));
    if (node.kind == Node::Kind::concrete) {
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      if (!node.gpu && node.pieces && node.pieces->on_gpu && !node.pieces->is_sharded()) {
        for (const BufferPtr& buffer : node.pieces->buffers)
          if (buffer && !node.gpu) node.gpu = buffer;  // the first lane's
      }
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
CudaLane* gpu_of_lane(int64_t) {
  platform();  // throws where a GPU was asked for
  return nullptr;
}
bool one_gpu_in_use() { return gpu_of_lane(0) != nullptr; }
BufferPtr copy_to_host(const Buffer&, int64_t) { missing(); }
BufferPtr allocate_on_gpu(int64_t, int64_t) { missing(); }
BufferPtr copy_on_gpu(const Buffer&, int64_t, int64_t, int64_t) { missing(); }
struct AsyncReadback::State {};
AsyncReadback::AsyncReadback() = default;
AsyncReadback::~AsyncReadback() = default;
bool AsyncReadback::is_pending() const { return false; }
void AsyncReadback::start(const Array&) { missing(); }
std::vector<float> AsyncReadback::wait() { missing(); }
void upload_in_one_copy(std::span<const Array>) { missing(); }
BufferPtr copy_to_gpu(const void*, int64_t, int64_t) { missing(); }
BufferPtr gpu_buffer_of(const Array&, const Type&, const char*) { missing(); }
#endif

}  // namespace lockstep::detail
