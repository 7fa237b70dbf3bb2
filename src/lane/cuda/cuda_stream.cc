#include "lane/cuda/cuda_stream.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/runtime_parts.h"
#include "lane/cuda/cuda_arena.h"
#include "lane/cuda/staging.h"
#include "lane/gpu_deadline.h"
#include "lane/gpu_report.h"
#include "lockstep/devices.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

thread_local int64_t wait_count_of_thread = 0;

// How long a wait polls without sleeping while other work is watched.
constexpr std::chrono::microseconds kSpin(500);

// A query that finds work pending sets the last error of the thread; clears it, so that no later call reports it.
cudaError_t clear_not_ready(cudaError_t state) {
  if (state == cudaErrorNotReady) cuda().cudaGetLastError();
  return state;
}

}  // namespace

std::string gpu_out_of_memory_text(int64_t bytes, const char* purpose, int64_t free, int64_t total, int64_t held,
                                   const std::string& name) {
  const auto gib = [](int64_t n) { return fmt::format("{:.2f} GiB", static_cast<double>(n) / (int64_t{1} << 30)); };
  return fmt::format(
      "cuda: {} requested for {}, but {} of the {} of {} are free; this process holds {}; use a smaller batch, or see "
      "with nvidia-smi which processes use the rest",
      gib(bytes), purpose, gib(free), gib(total), name, gib(held));
}

// An allocation and its lane.
struct CudaStream::Block {
  CudaStream* lane = nullptr;
  void* memory = nullptr;
  Block* next = nullptr;
};

// The streams in use of all runtimes, by GPU.
class CudaStream::StreamsOfGpus {
 public:
  static StreamsOfGpus& all() {
    static auto* const streams = new StreamsOfGpus;
    return *streams;
  }

  void add(CudaStream& stream) {
    const std::lock_guard lock(mutex_);
    std::vector<CudaStream*>& streams = by_gpu_[stream.gpu_];
    for (CudaStream* other : streams) other->share();
    stream.shared_ = !streams.empty();
    streams.push_back(&stream);
  }

  void remove(CudaStream& stream) {
    try {
      if (!GpuDeadline::any_expired()) stream.drain(false);
    } catch (const std::exception&) {  // the GPU is lost
    }
    const std::lock_guard lock(mutex_);
    std::vector<CudaStream*>& streams = by_gpu_[stream.gpu_];
    std::erase(streams, &stream);
    if (streams.size() == 1) streams[0]->shared_ = false;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<CudaStream*>> by_gpu_;
};

void CudaStream::share() {
  {
    const auto enqueue_lock = this->enqueue_lock();
    if (shared_.exchange(true) || !info_.exclusive) return;
  }
  drain(false);
}

// The streams of a runtime, made on first use.
class CudaStreams {
 public:
  CudaStreams() : gpus_(usable_gpus()), streams_(gpus_.size()) {}
  ~CudaStreams() {
    for (const auto& made : streams_)
      if (CudaStream* const stream = made) CudaStream::StreamsOfGpus::all().remove(*stream);
  }

  CudaStream& of(int64_t lane) {
    std::atomic<CudaStream*>& made = streams_.at(static_cast<size_t>(lane));
    if (CudaStream* const ready = made.load(std::memory_order_acquire)) return *ready;
    const std::lock_guard lock(mutex_);
    if (made) return *made;
    // Never destroyed: arrays in static objects may outlive any order of destruction.
    auto* const stream = new CudaStream(gpus_[static_cast<size_t>(lane)], gpus_.size() == 1 && process_count() == 1);
    CudaStream::StreamsOfGpus::all().add(*stream);
    made = stream;
    return *stream;
  }

 private:
  static std::vector<int> usable_gpus() {
    if (cuda_device_count() == 0) throw Error(cuda_why_not());
    return lane_gpus();
  }

  const std::vector<int> gpus_;  // of each lane
  std::mutex mutex_;
  std::vector<std::atomic<CudaStream*>> streams_;
};

CudaStream& CudaStream::of(int64_t lane) { return detail::runtime_part<CudaStreams>().of(lane); }

CudaStream::CudaStream(int gpu, bool exclusive) : gpu_(gpu) {
  GpuDeadline::timeout();  // throws now rather than in the first long wait
  enter();
  cudaDeviceProp properties{};
  check_cuda(cuda().cudaGetDeviceProperties(&properties, gpu), "query the properties of the GPU");
  info_ = {properties.name,
           static_cast<int64_t>(properties.totalGlobalMem),
           properties.major,
           properties.minor,
           properties.multiProcessorCount,
           static_cast<int64_t>(properties.sharedMemPerBlockOptin),
           {},
           false};
  static_assert(sizeof properties.uuid == sizeof info_.uuid);
  std::memcpy(info_.uuid.data(), &properties.uuid, sizeof properties.uuid);
  int mps = 0;  // MPS runs kernels of several processes at the same time
  check_cuda(cuda().cudaDeviceGetAttribute(&mps, cudaDevAttrMpsEnabled, gpu), "query whether the GPU is shared");
  info_.exclusive = exclusive && mps == 0;
  check_cuda(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  check_cuda(cuda().cudaDeviceGetDefaultMemPool(&pool_, gpu), "find the memory pool");
  uint64_t keep = std::numeric_limits<uint64_t>::max();  // never returns memory: a steady state needs no driver calls
  check_cuda(cuda().cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "set up the memory pool");
  staging_ = std::make_unique<CudaStaging>(*this);
}

CudaStream::Block* CudaStream::acquire_block() {
  const std::lock_guard lock(blocks_mutex_);
  if (!free_blocks_) return new Block{this, nullptr, nullptr};
  return std::exchange(free_blocks_, free_blocks_->next);
}

// Frees in stream order, after all enqueued work that may use the memory.
void CudaStream::free_device(void* owner) {
  auto* const block = static_cast<Block*>(owner);
  CudaStream& lane = *block->lane;
  if (GpuDeadline::any_expired()) return;  // a thread blocked inside CUDA may hold the lock forever
  if (!lane.try_enter()) return;
  {
    const auto enqueue_lock = lane.enqueue_lock();
    cuda().cudaFreeAsync(block->memory, lane.stream_);
  }
  lane.release_block(block);
}

void CudaStream::free_pinned(void* owner) {
  auto* const block = static_cast<Block*>(owner);
  if (GpuDeadline::any_expired() || !block->lane->try_enter()) return;
  cuda().cudaFreeHost(block->memory);
  block->lane->release_block(block);
}

void CudaStream::release_block(Block* block) {
  const std::lock_guard lock(blocks_mutex_);
  block->next = std::exchange(free_blocks_, block);
}

// For destructors.
bool CudaStream::try_enter() const noexcept {
  try {
    enter();
    return true;
  } catch (const std::exception&) {  // the GPU is lost, and its memory with it
    return false;
  }
}

int64_t CudaStream::memory_in_use() const {
  uint64_t held = 0;
  cuda().cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &held);
  return static_cast<int64_t>(held);
}

BufferPtr CudaStream::allocate(int64_t bytes, const char* purpose) {
  enter();
  auto enqueue_lock = this->enqueue_lock();
  void* data = nullptr;
  const auto try_allocate = [&] {
    return cuda().cudaMallocAsync(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream_);
  };
  cudaError_t error = try_allocate();
  for (bool freed = true; error == cudaErrorMemoryAllocation && !capturing() && freed;) {
    // The free memory of the pool may be fragmented: returns it to the driver and retries, at last without idle arenas.
    enqueue_lock.unlock();
    wait();
    enqueue_lock.lock();
    check_cuda(cuda().cudaMemPoolTrimTo(pool_, 0), "trim the memory pool");
    error = try_allocate();
    freed = error == cudaErrorMemoryAllocation && free_idle_arenas(bytes);
  }
  if (error == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    cuda().cudaMemGetInfo(&free, &total);
    throw OutOfMemory(gpu_out_of_memory_text(bytes, purpose, static_cast<int64_t>(free), static_cast<int64_t>(total),
                                             memory_in_use(), info_.name));
  }
  check_cuda(error, "allocate memory");
  Block* const block = acquire_block();
  block->memory = data;
  return Allocator::host().adopt(data, bytes, block, free_device, MemorySpace::device);
}

bool CudaStream::free_idle_arenas(int64_t bytes) {
  std::vector<BufferPtr> idle;  // freed without the lock
  const std::lock_guard lock(arenas_mutex_);
  int64_t found = 0;
  for (auto arena = arenas_.begin(); arena != arenas_.end() && found < bytes; ++arena) {
    if ((*arena)->running_ || (*arena)->kept_ || !(*arena)->memory_) continue;
    found += (*arena)->memory_->size();
    idle.push_back(std::exchange((*arena)->memory_, BufferPtr()));
  }
  return found > 0;
}

BufferPtr CudaStream::allocate_pinned(int64_t bytes) {
  enter();
  void* data = nullptr;
  check_cuda(cuda().cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocPortable),
             "allocate pinned host memory");
  Block* const block = acquire_block();
  block->memory = data;
  return Allocator::host().adopt(data, bytes, block, free_pinned, MemorySpace::pinned);
}

void CudaStream::to_device(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) staging_->to_device(to, from, bytes);
}

void CudaStream::to_host(void* to, const void* from, int64_t bytes) {
  ++wait_count_of_thread;
  if (bytes > 0) return staging_->to_host(to, from, bytes);
  drain(false);
}

void CudaStream::enqueue_copy_to_device(void* to, const void* from, int64_t bytes) {
  copy(to, from, bytes, cudaMemcpyHostToDevice, "copy to the GPU");
}

void CudaStream::enqueue_copy_to_host(void* to, const void* from, int64_t bytes, cudaEvent_t done) {
  const auto enqueue_lock = this->enqueue_lock();
  copy(to, from, bytes, cudaMemcpyDeviceToHost, "copy from the GPU");
  if (done) check_cuda(cuda().cudaEventRecord(done, stream_), "mark the end of a copy");
}

void CudaStream::wait_for(cudaEvent_t event) {
  ++wait_count_of_thread;
  poll_until_done(event, false, kSpin);
}

// An event recorded after all work enqueued so far. Takes the event from the lane's free list and returns it.
class CudaStream::StreamMarker {
 public:
  explicit StreamMarker(CudaStream& lane) : lane_(lane) {
    {
      const std::lock_guard lock(lane.blocks_mutex_);
      if (!lane.free_events_.empty()) {
        event_ = lane.free_events_.back();
        lane.free_events_.pop_back();
      }
    }
    if (!event_) event_ = new_cuda_event();
    const auto enqueue_lock = lane.enqueue_lock();
    if (const cudaError_t error = cuda().cudaEventRecord(event_, lane.stream()); error != cudaSuccess) {
      release();
      check_cuda(error, "wait for the GPU");
    }
  }
  ~StreamMarker() { release(); }
  StreamMarker(const StreamMarker&) = delete;

  cudaEvent_t event() const { return event_; }

 private:
  void release() {
    const std::lock_guard lock(lane_.blocks_mutex_);
    lane_.free_events_.push_back(event_);
  }

  CudaStream& lane_;
  cudaEvent_t event_ = nullptr;
};

void CudaStream::wait_until_idle(bool all) {
  ++wait_count_of_thread;
  drain(all);
}

void CudaStream::drain(bool all) {
  enter();
  const StreamMarker marker(*this);
  poll_until_done(marker.event(), all);
}

void CudaStream::poll_until_done(cudaEvent_t event, bool all, std::chrono::microseconds spin) {
  enter();
  constexpr std::chrono::microseconds kPollPeriod(1000);
  GpuDeadline deadline(is_watched() ? kSpin : spin);
  GpuDeadline::Clock::time_point polled = deadline.began();
  for (;; deadline.pause_or_throw(info_.name)) {
    const cudaError_t state = clear_not_ready(cuda().cudaEventQuery(event));
    bool busy = false;
    // Also once at the end: an aborted collective lets the event complete, and poll() must throw for it.
    if (const auto now = GpuDeadline::Clock::now(); state != cudaErrorNotReady || now - polled >= kPollPeriod) {
      polled = now;
      busy = poll_watched(deadline.began());
      if (busy) deadline.restart();
    }
    if (state != cudaErrorNotReady && (state != cudaSuccess || !all || !busy))
      return check_cuda(state, "wait for the GPU");
  }
}

bool CudaStream::is_watched() {
  const std::lock_guard lock(watched_mutex_);
  return !watched_.empty();
}

bool CudaStream::poll_watched(std::chrono::steady_clock::time_point waiting_since) {
  const std::lock_guard lock(watched_mutex_);
  bool busy = false;
  for (WatchedWork* each : watched_) busy |= each->poll(waiting_since);
  return busy;
}

void CudaStream::watch(WatchedWork* work) {
  const std::lock_guard lock(watched_mutex_);
  watched_.push_back(work);
}

void CudaStream::unwatch(WatchedWork* work) {
  const std::lock_guard lock(watched_mutex_);
  std::erase(watched_, work);
}

int64_t CudaStream::wait_count() { return wait_count_of_thread; }
void CudaStream::set_wait_count(int64_t count) { wait_count_of_thread = count; }

void CudaStream::copy(void* to, const void* from, int64_t bytes) {
  if (to != from) copy(to, from, bytes, cudaMemcpyDeviceToDevice, "copy on the GPU");
}

void CudaStream::copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, const char* what) {
  if (bytes == 0) return;
  enter();
  const auto enqueue_lock = this->enqueue_lock();
  check_cuda(cuda().cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream()), what);
}

void CudaStream::clear(void* to, int64_t bytes) {
  if (bytes == 0) return;
  enter();
  const auto enqueue_lock = this->enqueue_lock();
  check_cuda(cuda().cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream()), "clear memory");
}

cudaGraphExec_t CudaStream::capture(const std::function<void()>& enqueue) {
  enter();
  const auto enqueue_lock = this->enqueue_lock();
  cudaGraph_t graph = nullptr;
  check_cuda(cuda().cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "begin a graph capture");
  capturing_thread_ = std::this_thread::get_id();
  try {
    enqueue();
  } catch (...) {
    capturing_thread_ = std::thread::id();
    if (cuda().cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cuda().cudaGraphDestroy(graph);
    throw;
  }
  capturing_thread_ = std::thread::id();
  check_cuda(cuda().cudaStreamEndCapture(stream(), &graph), "end a graph capture");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cuda().cudaGraphInstantiate(&exec, graph, 0);
  cuda().cudaGraphDestroy(graph);
  check_cuda(error, "instantiate a graph");
  return exec;
}

void CudaStream::replay(cudaGraphExec_t graph) {
  enter();
  const auto enqueue_lock = this->enqueue_lock();
  check_cuda(cuda().cudaGraphLaunch(graph, stream()), "replay a graph");
}

void CudaStream::destroy_graph(cudaGraphExec_t graph) {
  try {
    wait();
  } catch (const std::exception&) {  // reported where the graph was run
  }
  if (!GpuDeadline::any_expired()) cuda().cudaGraphExecDestroy(graph);
}

cublasLtHandle_t CudaStream::blas() {
  enter();
  const auto enqueue_lock = this->enqueue_lock();  // several threads may make the first product
  if (!blas_) check_blas(cuda_blas().cublasLtCreate(&blas_), "create the cuBLASLt handle");
  return blas_;
}

void* CudaStream::blas_workspace() {
  const auto enqueue_lock = this->enqueue_lock();
  if (!blas_workspace_) blas_workspace_ = allocate(static_cast<int64_t>(kBlasBytes));
  return blas_workspace_->data();
}

}  // namespace lockstep
