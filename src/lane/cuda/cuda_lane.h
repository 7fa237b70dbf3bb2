// CudaLane: one GPU and what executes programs on it: a stream, on which everything happens in order, memory that is
// taken and given back in that order, and work space. Calls return when work is queued; only to_host() waits for it.
// Safe from any thread, one program at a time (running()).
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "lane/buffer.h"
#include "lane/cuda/api.h"

namespace lockstep {

struct CudaInfo {
  std::string name;          // "NVIDIA H200"
  int64_t memory = 0;        // bytes
  int major = 0, minor = 0;  // compute capability
  int processors = 0;        // streaming multiprocessors
  int64_t shared = 0;        // bytes of memory that a block of threads may have of its own
};

class CudaLane {
 public:
  // The GPU of this process, made on first use and never destroyed. Throws Error when there is none.
  static CudaLane& local();

  const CudaInfo& info() const { return info_; }
  cudaStream_t stream() const { return stream_; }
  std::mutex& running() { return running_; }

  // Memory of the GPU. Throws OutOfMemory with what was asked for, for what, and what there is.
  BufferPtr allocate(int64_t bytes, const char* purpose = "an array");

  // Host memory may be used again when they return. to_host() waits for all that was queued before.
  void to_device(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);
  // How often this thread has waited so.
  static int64_t waits();
  void copy(void* to, const void* from, int64_t bytes);
  void clear(void* to, int64_t bytes);

  // What `work` queues, recorded instead of queued, to be queued as one by replay(). Throws what `work` does.
  cudaGraphExec_t record(const std::function<void()>& work);
  void replay(cudaGraphExec_t);
  void forget(cudaGraphExec_t);
  // Is this inside record()?
  bool recording() const { return recording_; }

  // The context of matrix products and the space they may use meanwhile.
  cublasLtHandle_t blas();
  void* blas_space();
  static constexpr size_t kBlasBytes = size_t{32} << 20;

 private:
  explicit CudaLane(int device);

  CudaInfo info_;
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  std::mutex running_;
  bool recording_ = false;
  BufferPtr blas_space_;
  cublasLtHandle_t blas_ = nullptr;
};

// What an OutOfMemory of a GPU says. `held`: what arrays and programs of this process have of it.
std::string gpu_memory_text(int64_t bytes, const char* purpose, int64_t free, int64_t total, int64_t held,
                            const std::string& name);

}  // namespace lockstep
