#include "lane/cuda/cuda_lane.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {
thread_local int64_t waits_here = 0;
}

std::string gpu_memory_text(int64_t bytes, const char* purpose, int64_t free, int64_t total, int64_t held,
                            const std::string& name) {
  const auto gib = [](int64_t n) { return fmt::format("{:.2f} GiB", static_cast<double>(n) / (int64_t{1} << 30)); };
  return fmt::format(
      "cuda: {} are asked for, for {}, and {} of the {} of {} are free; arrays and programs of this process hold {}: "
      "use a smaller batch, or see with nvidia-smi who has the rest",
      gib(bytes), purpose, gib(free), gib(total), name, gib(held));
}

CudaLane& CudaLane::local() {
  static CudaLane* const lane = [] {
    if (cuda_device_count() == 0) throw Error(cuda_why_not());
    return new CudaLane(0);
  }();
  return *lane;
}

CudaLane::CudaLane(int device) {
  check_cuda(cuda().cudaSetDevice(device), "choose the GPU");
  cudaDeviceProp properties{};
  check_cuda(cuda().cudaGetDeviceProperties(&properties, device), "ask for the properties of the GPU");
  info_ = {properties.name,
           static_cast<int64_t>(properties.totalGlobalMem),
           properties.major,
           properties.minor,
           properties.multiProcessorCount,
           static_cast<int64_t>(properties.sharedMemPerBlockOptin)};
  check_cuda(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  check_cuda(cuda().cudaDeviceGetDefaultMemPool(&pool_, device), "find the memory pool");
  uint64_t keep = std::numeric_limits<uint64_t>::max();  // in a steady state nothing is asked of the driver
  check_cuda(cuda().cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "set up the memory pool");
}

BufferPtr CudaLane::allocate(int64_t bytes, const char* purpose) {
  void* data = nullptr;
  const auto ask = [&] {
    return cuda().cudaMallocAsync(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream_);
  };
  cudaError_t error = ask();
  if (error == cudaErrorMemoryAllocation && !recording_) {
    // What the pool keeps may be in pieces that are too small.
    check_cuda(cuda().cudaStreamSynchronize(stream_), "wait for the GPU");
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
  return Allocator::host().adopt(data, bytes, data, [](void* memory) {
    cuda().cudaFreeAsync(memory, CudaLane::local().stream());  // after all that was queued and may use it
  });
}

void CudaLane::to_device(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check_cuda(cuda().cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
             "copy to the GPU");
}

void CudaLane::to_host(void* to, const void* from, int64_t bytes) {
  if (bytes > 0)
    check_cuda(cuda().cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
               "copy from the GPU");
  check_cuda(cuda().cudaStreamSynchronize(stream_), "wait for the GPU");
  ++waits_here;
}

int64_t CudaLane::waits() { return waits_here; }

void CudaLane::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0 || to == from) return;
  check_cuda(cuda().cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
             "copy on the GPU");
}

void CudaLane::clear(void* to, int64_t bytes) {
  if (bytes > 0) check_cuda(cuda().cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_), "clear memory");
}

cudaGraphExec_t CudaLane::record(const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  check_cuda(cuda().cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin to record");
  recording_ = true;
  try {
    work();
  } catch (...) {
    recording_ = false;
    if (cuda().cudaStreamEndCapture(stream_, &graph) == cudaSuccess) cuda().cudaGraphDestroy(graph);
    throw;
  }
  recording_ = false;
  check_cuda(cuda().cudaStreamEndCapture(stream_, &graph), "end a recording");
  cudaGraphExec_t made = nullptr;
  const cudaError_t error = cuda().cudaGraphInstantiate(&made, graph, 0);
  cuda().cudaGraphDestroy(graph);
  check_cuda(error, "prepare a recording");
  return made;
}

void CudaLane::replay(cudaGraphExec_t graph) {
  check_cuda(cuda().cudaGraphLaunch(graph, stream_), "replay a recording");
}

void CudaLane::forget(cudaGraphExec_t graph) {
  cuda().cudaStreamSynchronize(stream_);
  cuda().cudaGraphExecDestroy(graph);
}

cublasLtHandle_t CudaLane::blas() {
  if (!blas_) check_blas(cuda_blas().cublasLtCreate(&blas_), "start matrix products");
  return blas_;
}

void* CudaLane::blas_space() {
  if (!blas_space_) blas_space_ = allocate(static_cast<int64_t>(kBlasBytes));
  return blas_space_->data();
}

}  // namespace lockstep
