// The functions of the CUDA runtime that lockstep uses (hardware/cuda/functions.def), for a GPU emulated by this
// machine's CPUs. Enqueued work runs at once, except for copies from and to pinned memory, work that waits for another
// stream, and copies after those. These are deferred as long as possible: until more work is enqueued, or a caller
// queries the stream.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulated/code.h"
#include "emulated/grid.h"
#include "emulated/stream.h"

#undef cudaGetDeviceProperties

namespace emulated {
namespace {

struct Kernel {
  void* (*bind)(void** arguments);
  void (*run)(void* bound);
  void (*end)(void* bound);
  size_t shared_bytes = 48 << 10;  // that a kernel may request
};
struct Library {
  Kernel kernel;
};
struct Stream {
  std::atomic<bool> capturing = false;
  std::thread::id capturing_thread;
  Work* captured = nullptr;
  std::deque<std::function<void()>> late;
  size_t done = 0;  // number of deferred works done
};
struct Event {
  std::atomic<int> looks = 0;
  Stream* stream = nullptr;
  size_t after = 0;  // number of deferred works enqueued before it
  // When that work had run: steady-clock nanoseconds.
  std::shared_ptr<std::atomic<int64_t>> time = std::make_shared<std::atomic<int64_t>>(0);
};

// Guards the deferred work of all streams, because streams wait for one another.
std::recursive_mutex& deferred_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

// Runs deferred work until `count` works of the stream have been done, or all of it.
void run_deferred(Stream& stream, size_t count = SIZE_MAX) {
  const std::lock_guard lock(deferred_mutex());
  while (!stream.late.empty() && stream.done < count) {
    const std::function<void()> work = std::move(stream.late.front());
    stream.late.pop_front();
    ++stream.done;
    work();
  }
}
void defer(Stream& stream, std::function<void()> work) {
  const std::lock_guard lock(deferred_mutex());
  stream.late.push_back(std::move(work));
}
bool has_deferred(Stream& stream) {
  const std::lock_guard lock(deferred_mutex());
  return !stream.late.empty();
}

// Aborts if another thread is capturing the stream.
Stream& stream_of(cudaStream_t stream) {
  Stream& out = *reinterpret_cast<Stream*>(stream);
  if (out.capturing && out.capturing_thread != std::this_thread::get_id()) {
    std::fprintf(stderr, "emulated GPU: a stream is used while another thread captures it\n");
    std::abort();
  }
  return out;
}

constexpr int kRegisters = 128;  // that any kernel is reported to use per thread

int number_in(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text && std::atoi(text) > 0 ? std::atoi(text) : otherwise;
}

int driver() { return number_in("LOCKSTEP_EMULATED_DRIVER", CUDART_VERSION); }

int64_t memory() {
  static const int64_t bytes = int64_t{number_in("LOCKSTEP_EMULATED_MEMORY", 4096)} << 20;
  return bytes;
}

// Emulates another process that uses all memory, or the GPU exclusively. (`rest`: see blas.cc.)
cudaError_t taken_error() {
  const char* const what = std::getenv("LOCKSTEP_EMULATED_TAKEN");
  if (!what || what == std::string("rest")) return cudaSuccess;
  return what == std::string("memory") ? cudaErrorMemoryAllocation : cudaErrorDevicesUnavailable;
}

// Emulates a lost GPU: as soon as the file exists, every call fails.
cudaError_t state() {
  static const char* const file = std::getenv("LOCKSTEP_EMULATED_LOST_WITH");
  static std::atomic<bool> lost = false;
  if (file && !lost && ::faccessat(AT_FDCWD, file, F_OK, 0) == 0) lost = true;
  return lost ? cudaErrorECCUncorrectable : cudaSuccess;
}

// Emulates a GPU that hangs: as soon as the file exists, enqueued work never ends. Blocking calls then wait forever,
// also at process exit.
std::atomic<bool> hung = false;
bool hangs() {
  static const char* const file = std::getenv("LOCKSTEP_EMULATED_HANGS_WITH");
  if (file && !hung && ::faccessat(AT_FDCWD, file, F_OK, 0) == 0) hung = true;
  return hung;
}
__attribute__((destructor)) void end() {
  while (hung) ::pause();
}

// Memory that ends at an inaccessible page, filled with NaN when it is allocated and freed.
class Heap {
 public:
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (held_ + static_cast<int64_t>(bytes) > memory()) return nullptr;
    const size_t usable = (bytes + 15) / 16 * 16, pages = (usable + kPage - 1) / kPage * kPage;
    auto* const memory = static_cast<char*>(
        ::mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory == MAP_FAILED) return nullptr;
    ::mprotect(memory + pages, kPage, PROT_NONE);
    // Large allocations begin at a page.
    char* const at = memory + (pages - usable) / 256 * 256;
    std::memset(at, 0xff, usable);
    blocks_[at] = {memory, pages + kPage, static_cast<int64_t>(bytes)};
    held_ += static_cast<int64_t>(bytes);
    return at;
  }
  void give_back(void* at) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(at);
    if (found == blocks_.end()) return;
    ::munmap(found->second.memory, found->second.size);
    held_ -= found->second.bytes;
    blocks_.erase(found);
  }
  int64_t held() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

 private:
  static constexpr size_t kPage = 4096;
  struct Piece {
    void* memory;
    size_t size;
    int64_t bytes;
  };
  std::mutex mutex_;
  std::map<void*, Piece> blocks_;
  int64_t held_ = 0;
};
Heap& heap() {
  static auto* const instance = new Heap;
  return *instance;
}

// Pinned host memory.
class Pinned {
 public:
  void add(const void* at, size_t bytes) {
    const std::lock_guard lock(mutex_);
    all_[static_cast<const char*>(at)] = bytes;
  }
  void remove(const void* at) {
    const std::lock_guard lock(mutex_);
    all_.erase(static_cast<const char*>(at));
  }
  bool contains(const void* place) {
    const auto* const at = static_cast<const char*>(place);
    const std::lock_guard lock(mutex_);
    auto next = all_.upper_bound(at);
    return next != all_.begin() && (--next, at < next->first + next->second);
  }

 private:
  std::mutex mutex_;
  std::map<const char*, size_t> all_;
};
Pinned& pinned() {
  static auto* const instance = new Pinned;
  return *instance;
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments, size_t bytes, cudaStream_t stream) {
  const auto& kernel = *static_cast<const Kernel*>(function);
  if (grid.x == 0 || block.x == 0 || block.x > 1024 || bytes > kernel.shared_bytes) return cudaErrorInvalidValue;
  if (const cudaError_t error = state(); error != cudaSuccess) return error;
  if (!kernel.run) return cudaSuccess;  // only its text was wanted
  trace(stream_of(stream).capturing ? "captured kernel, blocks" : "kernel, blocks", grid.x);
  const std::shared_ptr<void> bound(kernel.bind(arguments), kernel.end);
  enqueue(stream, [=, run = kernel.run] {
    run_grid({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, bytes, [&] { run(bound.get()); });
  });
  return cudaSuccess;
}

}  // namespace

void block_if_hanging() {
  while (hangs()) ::pause();
}

// Prints a line for enqueued work if LOCKSTEP_EMULATED_TRACE is set.
void trace(const char* what, size_t size) {
  static const bool wanted = std::getenv("LOCKSTEP_EMULATED_TRACE") != nullptr;
  if (wanted) std::fprintf(stderr, "emulated GPU: %s %zu\n", what, size);
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream_of(stream).capturing) return stream_of(stream).captured->push_back(std::move(work));
  run_deferred(stream_of(stream));
  work();
}

bool is_capturing(cudaStream_t stream) { return stream_of(stream).capturing; }
Work* captured_by(cudaStream_t stream) { return stream_of(stream).captured; }
void begin_capture(cudaStream_t stream, Work* graph) {
  Stream& out = stream_of(stream);
  out.capturing_thread = std::this_thread::get_id();
  out.captured = graph;
  out.capturing = true;
}
Work* end_capture(cudaStream_t stream) {
  stream_of(stream).capturing = false;
  return std::exchange(stream_of(stream).captured, nullptr);
}
cudaError_t launch_graph(const Work& graph, cudaStream_t stream) {
  trace("graph, entries", graph.size());
  if (const cudaError_t error = state(); error != cudaSuccess) return error;
  run_deferred(stream_of(stream));
  for (const auto& work : graph) work();
  return cudaSuccess;
}

}  // namespace emulated

using emulated::enqueue;
using emulated::heap;
using emulated::stream_of;

static emulated::Event& event_of(cudaEvent_t event) { return *reinterpret_cast<emulated::Event*>(event); }

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulated::number_in("LOCKSTEP_EMULATED_GPUS", 1);
  return emulated::driver() < CUDART_VERSION ? cudaErrorInsufficientDriver : cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return emulated::taken_error(); }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  *out = {};
  std::strcpy(out->name, "emulated GPU");
  out->totalGlobalMem = static_cast<size_t>(emulated::memory());
  out->major = 9;
  out->multiProcessorCount = emulated::number_in("LOCKSTEP_EMULATED_PROCESSORS", 16);
  out->sharedMemPerBlockOptin = kSharedBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 0;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = emulated::driver();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorDevicesUnavailable:
      return "cudaErrorDevicesUnavailable";
    default:
      return "cudaErrorUnknown";
  }
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    case cudaErrorDevicesUnavailable:
      return "the GPU is busy or unavailable";
    default:
      return "not supported by the emulated GPU";
  }
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = static_cast<uint64_t>(heap().held());
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = static_cast<size_t>(emulated::memory());
  *free = *total - static_cast<size_t>(heap().held());
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** at, size_t bytes, cudaStream_t stream) {
  stream_of(stream);
  emulated::trace("allocate, bytes", bytes);
  *at = heap().take(bytes);
  return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeAsync(void* at, cudaStream_t stream) {
  emulated::run_deferred(stream_of(stream));
  heap().give_back(at);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** at, size_t bytes, unsigned) {
  *at = std::malloc(bytes);
  emulated::pinned().add(*at, bytes);
  return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* at) {
  emulated::block_if_hanging();
  emulated::pinned().remove(at);
  std::free(at);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  emulated::trace(kind == cudaMemcpyHostToDevice   ? "copy from the host, bytes"
                  : kind == cudaMemcpyDeviceToHost ? "copy to the host, bytes"
                                                   : "copy, bytes",
                  bytes);
  if (const cudaError_t error = emulated::state(); error != cudaSuccess) return error;
  // Of pageable memory, CUDA stores only small copies in the command itself.
  constexpr size_t kKept = 64 << 10;
  const bool away = kind == cudaMemcpyHostToDevice, back = kind == cudaMemcpyDeviceToHost;
  const bool is_pinned = (away || back) && emulated::pinned().contains(away ? from : to);
  if (!is_pinned && (back || (away && bytes > kKept))) emulated::block_if_hanging();
  const auto work = [=] { std::memmove(to, from, bytes); };
  if (!stream_of(stream).capturing && (is_pinned || (!away && !back && emulated::has_deferred(stream_of(stream)))))
    emulated::defer(stream_of(stream), work);
  else
    enqueue(stream, work);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  emulated::trace("clear, bytes", bytes);
  enqueue(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new emulated::Stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &stream_of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(emulated::deferred_mutex());
  if (emulated::Stream* const other = event_of(event).stream)
    emulated::defer(stream_of(stream),
                    [other, after = event_of(event).after] { emulated::run_deferred(*other, after); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new emulated::Event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}
// Runs the work before the event, but reports it as pending the first time.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  std::atomic<int>& looks = event_of(event).looks;
  if (emulated::hangs() || (looks > 0 && looks-- > 0)) return cudaErrorNotReady;
  emulated::trace("wait", 0);
  const std::lock_guard lock(emulated::deferred_mutex());
  if (event_of(event).stream) emulated::run_deferred(*event_of(event).stream, event_of(event).after);
  return emulated::state();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  emulated::Stream& on = stream_of(stream);
  const std::lock_guard lock(emulated::deferred_mutex());
  event_of(event).stream = &on;
  const auto stamp = [time = event_of(event).time] {
    *time = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  };
  if (on.late.empty())
    stamp();
  else
    emulated::defer(on, stamp);
  event_of(event).after = on.done + on.late.size();
  event_of(event).looks = 2;
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (*event_of(begin).time == 0 || *event_of(end).time == 0) return cudaErrorNotReady;
  *milliseconds = static_cast<float>(*event_of(end).time - *event_of(begin).time) / 1e6F;
  return cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  void* const handle = emulated::load_code(code);
  if (!handle) return cudaErrorInvalidKernelImage;
  auto* const made = new emulated::Library;
  made->kernel.bind = reinterpret_cast<void* (*)(void**)>(::dlsym(handle, "emulated_bind"));
  made->kernel.run = reinterpret_cast<void (*)(void*)>(::dlsym(handle, "emulated_run"));
  made->kernel.end = reinterpret_cast<void (*)(void*)>(::dlsym(handle, "emulated_end"));
  *library = reinterpret_cast<cudaLibrary_t>(made);
  return cudaSuccess;
}
cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t* kernels, unsigned, cudaLibrary_t library) {
  kernels[0] = reinterpret_cast<cudaKernel_t>(&reinterpret_cast<emulated::Library*>(library)->kernel);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int value) {
  if (value < 0 || static_cast<size_t>(value) > kSharedBytes) return cudaErrorInvalidValue;
  auto& kernel = *static_cast<emulated::Kernel*>(const_cast<void*>(function));
  kernel.shared_bytes = std::max(kernel.shared_bytes, static_cast<size_t>(value));
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = {};
  out->numRegs = emulated::kRegisters;
  return cudaSuccess;
}
// As many as shared memory and the 2048 threads of a multiprocessor allow.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t bytes) {
  constexpr int kThreads = 2048;
  *blocks = std::min(kThreads / threads, static_cast<int>(kSharedBytes / std::max<size_t>(bytes, 1)));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t bytes,
                             cudaStream_t stream) {
  return emulated::launch(function, grid, block, arguments, bytes, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return emulated::launch(function, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                          config->stream);
}

// Pretends that the driver's device files exist.
int access(const char* path, int mode) noexcept {
  if (std::strcmp(path, "/dev/nvidiactl") == 0) return 0;
  return ::faccessat(AT_FDCWD, path, mode, 0);
}

}  // extern "C"
