#include "lane/cuda/cuda_lane.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "lockstep/error.h"

namespace lockstep {

CudaLane& CudaLane::local() {
  static CudaLane* const lane = [] {
    if (cuda_device_count() == 0) throw Error(cuda_why_not());
    return new CudaLane(0);
  }();
  return *lane;
}

CudaLane::CudaLane(int device) : device_(device) {
  check_cuda(cuda().cudaSetDevice(device), "choose the GPU");
  cudaDeviceProp properties{};
  check_cuda(cuda().cudaGetDeviceProperties(&properties, device), "ask for the properties of the GPU");
  info_ = {properties.name, static_cast<int64_t>(properties.totalGlobalMem), properties.major, properties.minor,
           properties.multiProcessorCount};
  check_cuda(cuda().cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  cudaMemPool_t pool = nullptr;
  check_cuda(cuda().cudaDeviceGetDefaultMemPool(&pool, device), "find the memory pool");
  uint64_t keep = std::numeric_limits<uint64_t>::max();  // in a steady state nothing is asked of the driver
  check_cuda(cuda().cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "set up the memory pool");
}

BufferPtr CudaLane::allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cuda().cudaMallocAsync(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1)), stream_);
  if (error == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    cuda().cudaMemGetInfo(&free, &total);
    throw OutOfMemory(
        fmt::format("cuda: {} bytes asked for, and {} of the {} bytes of {} are free; use a smaller batch, or "
                    "see with nvidia-smi who has the rest",
                    bytes, free, total, info_.name));
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
}

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
