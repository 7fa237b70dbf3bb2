// CudaLane: one GPU and what executes programs on it: a stream, on which everything happens in order, memory that is
// taken and given back in that order, and work space. Calls return when work is queued; only to_host() and wait() wait
// for it. A process has as many as it has GPUs, or as gpu_lanes.h says, each with what is its own.
// Safe from any thread, one program at a time on each (running()).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lane/buffer.h"
#include "lane/cuda/api.h"

namespace lockstep {

class CudaStaging;

struct CudaInfo {
  std::string name;                // "NVIDIA H200"
  int64_t memory = 0;              // bytes
  int major = 0, minor = 0;        // compute capability
  int processors = 0;              // streaming multiprocessors
  int64_t shared = 0;              // bytes of memory that a block of threads may have of its own
  std::array<uint8_t, 16> uuid{};  // no other GPU has the same
  bool alone = false;              // no other lane, process or collective uses it while a kernel runs
};

class CudaLane {
 public:
  // Lanes of this process, made on first use and never destroyed. Throw Error when there is no GPU. The first is where
  // programs run that are not cut.
  static CudaLane& of(int64_t lane);
  static CudaLane& local() { return of(0); }

  const CudaInfo& info() const { return info_; }
  // For who queues something on it: then nothing else was queued last any more.
  cudaStream_t stream() {
    last_ = nullptr;
    return stream_;
  }
  std::mutex& running() { return running_; }
  // Held while something is queued by this thread, which another may be recording otherwise: what is queued meanwhile
  // would become a part of that. Who records may queue.
  std::unique_lock<std::recursive_mutex> queueing() { return std::unique_lock(recording_mutex_); }

  // This thread's calls go to this GPU from now on. The functions here that need it do so themselves.
  void enter() const { use_gpu(gpu_); }

  // Memory of the GPU. Throws OutOfMemory with what was asked for, for what, and what there is.
  BufferPtr allocate(int64_t bytes, const char* purpose = "an array");
  // Memory of the host that this and every other GPU copies from and to without another copy in between.
  BufferPtr allocate_pinned(int64_t bytes);

  // Memory of the host may be used again when they return. to_host() waits for all that was queued before.
  void to_device(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);
  // Copies from and to memory of allocate_pinned() that are on their way when they return, and then the event, if one
  // is given; and waiting for that, and for nothing that was queued after it.
  void send_to_device(void* to, const void* from, int64_t bytes);
  void send_to_host(void* to, const void* from, int64_t bytes, cudaEvent_t then = nullptr);
  void wait_for(cudaEvent_t event);
  // Returns when all that was queued before is done; wait_for_all(): and all that others do beside it (Watched).
  void wait() { wait_until_idle(false); }
  void wait_for_all() { wait_until_idle(true); }

  // What others do in the stream's order or beside it, and may never end. While this lane waits for its GPU, look() is
  // called again and again with the time at which the wait began; it throws when there is no more use in waiting.
  // Returns whether anything of it is still under way.
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual bool look(std::chrono::steady_clock::time_point waiting_since) = 0;
  };
  void watch(Watched* watched);
  // look() is not called any more when it returns.
  void unwatch(Watched* watched);

  // How often this thread has waited so; but for what is done once and not each time, while there is a WaitsOnce.
  static int64_t waits();
  class WaitsOnce {
   public:
    WaitsOnce() : before_(waits()) {}
    ~WaitsOnce() { set_waits(before_); }
    WaitsOnce(const WaitsOnce&) = delete;
    WaitsOnce& operator=(const WaitsOnce&) = delete;

   private:
    const int64_t before_;
  };
  void copy(void* to, const void* from, int64_t bytes);
  void clear(void* to, int64_t bytes);

  // What `work` queues, recorded instead of queued, to be queued as one by replay(). Throws what `work` does.
  cudaGraphExec_t record(const std::function<void()>& work);
  void replay(cudaGraphExec_t);
  void forget(cudaGraphExec_t);
  // Is this inside record(), called by this thread?
  bool recording() const { return recorder_ == std::this_thread::get_id(); }

  // Who queues may say so, and was the last for as long as nothing else is queued: what it queued comes directly before
  // what is queued next. Memory that is taken or given back is nothing that is queued.
  void set_last(const void* who) { last_ = who; }
  bool was_last(const void* who) const { return last_ == who; }

  // The context of matrix products and the space they may use meanwhile.
  cublasLtHandle_t blas();
  void* blas_space();
  static constexpr size_t kBlasBytes = size_t{32} << 20;

 private:
  friend class CudaStaging;
  CudaLane(int gpu, bool alone);
  void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, const char* what);
  void wait_until_idle(bool all);
  void settle(bool all);  // the same, which is not counted
  // Nor is this. Looks all the time for as long as `awake` where nothing is watched.
  static constexpr std::chrono::microseconds kAwakeAlone{20000};
  void until(cudaEvent_t event, bool all = false, std::chrono::microseconds awake = kAwakeAlone);
  bool look(std::chrono::steady_clock::time_point waiting_since);
  static void set_waits(int64_t count);
  bool is_watched();
  struct Block;
  class Mark;
  Block* take_block();
  static void give_back(void* block);
  static void give_back_pinned(void* block);
  void keep_block(Block* block);
  bool entered() const noexcept;

  const int gpu_;  // of those visible
  CudaInfo info_;
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  std::mutex running_;
  std::recursive_mutex recording_mutex_;
  std::atomic<std::thread::id> recorder_ = std::thread::id();
  std::atomic<const void*> last_ = nullptr;
  BufferPtr blas_space_;
  cublasLtHandle_t blas_ = nullptr;
  std::mutex blocks_mutex_;
  Block* free_blocks_ = nullptr;
  std::vector<cudaEvent_t> free_events_;
  std::unique_ptr<CudaStaging> staging_;
  std::mutex watched_mutex_;  // held while they are looked at
  std::vector<Watched*> watched_;
};

// What an OutOfMemory of a GPU says. `held`: what arrays and programs of this process have of it.
std::string gpu_memory_text(int64_t bytes, const char* purpose, int64_t free, int64_t total, int64_t held,
                            const std::string& name);

}  // namespace lockstep
