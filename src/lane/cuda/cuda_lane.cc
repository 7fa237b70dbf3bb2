#include "lane/cuda/cuda_lane.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "lane/cuda/staging.h"
#include "lane/gpu_patience.h"
#include "lockstep/devices.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

thread_local int64_t waits_here = 0;

// How long a wait looks all the time where others are looked at, too.
constexpr std::chrono::microseconds kAwake(500);

// CUDA keeps what a look has found as the last error of this thread, which is no error to whoever asks for that next.
cudaError_t not_kept(cudaError_t state) {
  if (state == cudaErrorNotReady) cuda().cudaGetLastError();
  return state;
}

}  // namespace

std::string gpu_memory_text(int64_t bytes, const char* purpose, int64_t free, int64_t total, int64_t held,
                            const std::string& name) {
  const auto gib = [](int64_t n) { return fmt::format("{:.2f} GiB", static_cast<double>(n) / (int64_t{1} << 30)); };
  return fmt::format(
      "cuda: {} are asked for, for {}, and {} of the {} of {} are free; arrays and programs of this process hold {}: "
      "use a smaller batch, or see with nvidia-smi who has the rest",
      gib(bytes), purpose, gib(free), gib(total), name, gib(held));
}

// Memory that was taken, and on which lane.
struct CudaLane::Block {
  CudaLane* lane = nullptr;
  void* memory = nullptr;
  Block* next = nullptr;
};

CudaLane& CudaLane::of(int64_t lane) {
  static const std::vector<int>* const gpus = [] {
    if (cuda_device_count() == 0) throw Error(cuda_why_not());
    return new std::vector<int>(lane_gpus());
  }();
  static auto* const lanes = new std::vector<std::atomic<CudaLane*>>(gpus->size());
  std::atomic<CudaLane*>& made = lanes->at(static_cast<size_t>(lane));
  if (CudaLane* const ready = made.load(std::memory_order_acquire)) return *ready;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!made) made = new CudaLane((*gpus)[static_cast<size_t>(lane)], gpus->size() == 1 && process_count() == 1);
  return *made;
}

CudaLane::CudaLane(int gpu, bool alone) : gpu_(gpu) {
  GpuPatience::timeout();  // which throws, better now than when the first wait takes long
  enter();
  cudaDeviceProp properties{};
  check_cuda(cuda().cudaGetDeviceProperties(&properties, gpu), "ask for the properties of the GPU");
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
  int mixed = 0;  // MPS runs kernels of several processes at a time
  check_cuda(cuda().cudaDeviceGetAttribute(&mixed, cudaDevAttrMpsEnabled, gpu), "ask how the GPU is shared");
  info_.alone = alone && mixed == 0;
  check_cuda(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  check_cuda(cuda().cudaDeviceGetDefaultMemPool(&pool_, gpu), "find the memory pool");
  uint64_t keep = std::numeric_limits<uint64_t>::max();  // in a steady state nothing is asked of the driver
  check_cuda(cuda().cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "set up the memory pool");
  staging_ = std::make_unique<CudaStaging>(*this);
}

CudaLane::Block* CudaLane::take_block() {
  const std::lock_guard lock(blocks_mutex_);
  if (!free_blocks_) return new Block{this, nullptr, nullptr};
  return std::exchange(free_blocks_, free_blocks_->next);
}

// After all that was queued and may use it.
void CudaLane::give_back(void* owner) {
  auto* const block = static_cast<Block*>(owner);
  CudaLane& lane = *block->lane;
  if (GpuPatience::is_given_up()) return;  // who waits for the GPU inside of CUDA may hold the lock for ever
  if (!lane.entered()) return;
  {
    const auto queueing = lane.queueing();
    cuda().cudaFreeAsync(block->memory, lane.stream_);
  }
  lane.keep_block(block);
}

void CudaLane::give_back_pinned(void* owner) {
  auto* const block = static_cast<Block*>(owner);
  if (GpuPatience::is_given_up() || !block->lane->entered()) return;
  cuda().cudaFreeHost(block->memory);
  block->lane->keep_block(block);
}

void CudaLane::keep_block(Block* block) {
  const std::lock_guard lock(blocks_mutex_);
  block->next = std::exchange(free_blocks_, block);
}

// For destructors.
bool CudaLane::entered() const noexcept {
  try {
    enter();
    return true;
  } catch (const std::exception&) {  // it is lost, and its memory with it
    return false;
  }
}

BufferPtr CudaLane::allocate(int64_t bytes, const char* purpose) {
  enter();
  auto queueing = this->queueing();
  void* data = nullptr;
  const auto ask = [&] {
    return cuda().cudaMallocAsync(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream_);
  };
  cudaError_t error = ask();
  if (error == cudaErrorMemoryAllocation && !recording()) {
    // What the pool keeps may be in pieces that are too small.
    queueing.unlock();
    wait();
    queueing.lock();
    check_cuda(cuda().cudaMemPoolTrimTo(pool_, 0), "give memory back");
    error = ask();
  }
  if (error == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    uint64_t held = 0;
    cuda().cudaMemGetInfo(&free, &total);
    cuda().cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &held);
    throw OutOfMemory(gpu_memory_text(bytes, purpose, static_cast<int64_t>(free), static_cast<int64_t>(total),
                                      static_cast<int64_t>(held), info_.name));
  }
  check_cuda(error, "allocate memory");
  Block* const block = take_block();
  block->memory = data;
  return Allocator::host().adopt(data, bytes, block, give_back);
}

BufferPtr CudaLane::allocate_pinned(int64_t bytes) {
  enter();
  void* data = nullptr;
  check_cuda(cuda().cudaHostAlloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cudaHostAllocPortable),
             "allocate memory of the host");
  Block* const block = take_block();
  block->memory = data;
  return Allocator::host().adopt(data, bytes, block, give_back_pinned);
}

void CudaLane::to_device(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) staging_->to_device(to, from, bytes);
}

void CudaLane::to_host(void* to, const void* from, int64_t bytes) {
  ++waits_here;
  if (bytes > 0) return staging_->to_host(to, from, bytes);
  settle(false);
}

void CudaLane::send_to_device(void* to, const void* from, int64_t bytes) {
  copy(to, from, bytes, cudaMemcpyHostToDevice, "copy to the GPU");
}

void CudaLane::send_to_host(void* to, const void* from, int64_t bytes, cudaEvent_t then) {
  const auto queueing = this->queueing();
  copy(to, from, bytes, cudaMemcpyDeviceToHost, "copy from the GPU");
  if (then) check_cuda(cuda().cudaEventRecord(then, stream_), "mark the end of a copy");
}

void CudaLane::wait_for(cudaEvent_t event) {
  ++waits_here;
  until(event, false, kAwake);
}

// An event after all that was queued before, which nobody else uses meanwhile.
class CudaLane::Mark {
 public:
  explicit Mark(CudaLane& lane) : lane_(lane) {
    {
      const std::lock_guard lock(lane.blocks_mutex_);
      if (!lane.free_events_.empty()) {
        event_ = lane.free_events_.back();
        lane.free_events_.pop_back();
      }
    }
    if (!event_) event_ = new_cuda_event();
    const auto queueing = lane.queueing();
    if (const cudaError_t error = cuda().cudaEventRecord(event_, lane.stream()); error != cudaSuccess) {
      give_back();
      check_cuda(error, "wait for the GPU");
    }
  }
  ~Mark() { give_back(); }
  Mark(const Mark&) = delete;

  cudaEvent_t event() const { return event_; }

 private:
  void give_back() {
    const std::lock_guard lock(lane_.blocks_mutex_);
    lane_.free_events_.push_back(event_);
  }

  CudaLane& lane_;
  cudaEvent_t event_ = nullptr;
};

void CudaLane::wait_until_idle(bool all) {
  ++waits_here;
  settle(all);
}

void CudaLane::settle(bool all) {
  enter();
  const Mark mark(*this);
  until(mark.event(), all);
}

void CudaLane::until(cudaEvent_t event, bool all, std::chrono::microseconds awake) {
  enter();
  constexpr std::chrono::microseconds kLook(1000);
  GpuPatience patience(is_watched() ? kAwake : awake);
  GpuPatience::Clock::time_point looked = patience.began();
  for (;; patience.rest(info_.name)) {
    const cudaError_t state = not_kept(cuda().cudaEventQuery(event));
    bool busy = false;
    // Also once at the end: what was given up has ended, too.
    if (const auto now = GpuPatience::Clock::now(); state != cudaErrorNotReady || now - looked >= kLook) {
      looked = now;
      busy = look(patience.began());
      if (busy) patience.put_off();
    }
    if (state != cudaErrorNotReady && (state != cudaSuccess || !all || !busy))
      return check_cuda(state, "wait for the GPU");
  }
}

bool CudaLane::is_watched() {
  const std::lock_guard lock(watched_mutex_);
  return !watched_.empty();
}

bool CudaLane::look(std::chrono::steady_clock::time_point waiting_since) {
  const std::lock_guard lock(watched_mutex_);
  bool busy = false;
  for (Watched* each : watched_) busy |= each->look(waiting_since);
  return busy;
}

void CudaLane::watch(Watched* watched) {
  const std::lock_guard lock(watched_mutex_);
  watched_.push_back(watched);
}

void CudaLane::unwatch(Watched* watched) {
  const std::lock_guard lock(watched_mutex_);
  std::erase(watched_, watched);
}

int64_t CudaLane::waits() { return waits_here; }
void CudaLane::set_waits(int64_t count) { waits_here = count; }

void CudaLane::copy(void* to, const void* from, int64_t bytes) {
  if (to != from) copy(to, from, bytes, cudaMemcpyDeviceToDevice, "copy on the GPU");
}

void CudaLane::copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, const char* what) {
  if (bytes == 0) return;
  enter();
  const auto queueing = this->queueing();
  check_cuda(cuda().cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream()), what);
}

void CudaLane::clear(void* to, int64_t bytes) {
  if (bytes == 0) return;
  enter();
  const auto queueing = this->queueing();
  check_cuda(cuda().cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream()), "clear memory");
}

cudaGraphExec_t CudaLane::record(const std::function<void()>& work) {
  enter();
  const auto queueing = this->queueing();
  cudaGraph_t graph = nullptr;
  check_cuda(cuda().cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "begin to record");
  recorder_ = std::this_thread::get_id();
  try {
    work();
  } catch (...) {
    recorder_ = std::thread::id();
    if (cuda().cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cuda().cudaGraphDestroy(graph);
    throw;
  }
  recorder_ = std::thread::id();
  check_cuda(cuda().cudaStreamEndCapture(stream(), &graph), "end a recording");
  cudaGraphExec_t made = nullptr;
  const cudaError_t error = cuda().cudaGraphInstantiate(&made, graph, 0);
  cuda().cudaGraphDestroy(graph);
  check_cuda(error, "prepare a recording");
  return made;
}

void CudaLane::replay(cudaGraphExec_t graph) {
  enter();
  const auto queueing = this->queueing();
  check_cuda(cuda().cudaGraphLaunch(graph, stream()), "replay a recording");
}

void CudaLane::forget(cudaGraphExec_t graph) {
  try {
    wait();
  } catch (const std::exception&) {  // told where it was run
  }
  if (!GpuPatience::is_given_up()) cuda().cudaGraphExecDestroy(graph);
}

cublasLtHandle_t CudaLane::blas() {
  enter();
  const auto queueing = this->queueing();  // several threads may ask for the first product
  if (!blas_) check_blas(cuda_blas().cublasLtCreate(&blas_), "start matrix products");
  return blas_;
}

void* CudaLane::blas_space() {
  const auto queueing = this->queueing();
  if (!blas_space_) blas_space_ = allocate(static_cast<int64_t>(kBlasBytes));
  return blas_space_->data();
}

}  // namespace lockstep
