// CudaStream: the stream of a lane on a GPU. All its work runs in order. It also has memory that is allocated and freed
// in stream order, and the cuBLASLt workspace. Calls enqueue work and return; only to_host() and the wait functions
// block. A runtime has one CudaStream per GPU, or as many as gpu_lanes.h defines. Safe from any thread, one program at a
// time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hardware/cuda/api.h"
#include "lane/buffer.h"

namespace lockstep {

class CudaArena;
class CudaStaging;

struct CudaInfo {
  std::string name;                // "NVIDIA H200"
  int64_t memory = 0;              // bytes
  int major = 0, minor = 0;        // compute capability
  int processors = 0;              // streaming multiprocessors
  int64_t shared = 0;              // bytes of shared memory that a thread block may use
  std::array<uint8_t, 16> uuid{};  // unique to this GPU
  bool exclusive = false;          // no other lane of the runtime, process or collective uses it while a kernel runs
};

class CudaStream {
 public:
  // Those of the current runtime, made on first use and never destroyed. Throw Error if no GPU is usable.
  static CudaStream& of(int64_t lane);
  static CudaStream& local() { return of(0); }

  const CudaInfo& info() const { return info_; }
  // Whether nothing else uses the GPU while a kernel runs: CudaInfo::exclusive, and no other runtime has a stream on it. Only
  // a holder of enqueue_lock() can rely on it. While several runtimes share a GPU it is false for all of them, and when it
  // becomes false, what was enqueued before has ended.
  bool is_exclusive() const { return info_.exclusive && !shared_; }
  // Returns the stream for enqueueing; clears the last-launch marker.
  cudaStream_t stream() {
    last_ = nullptr;
    return stream_;
  }
  // Hold it while enqueueing, so that the work does not become part of a graph that another thread captures. The
  // capturing thread may take it again.
  std::unique_lock<std::recursive_mutex> enqueue_lock() { return std::unique_lock(capture_mutex_); }

  // Makes this GPU current for the calling thread. The functions below do so themselves.
  void enter() const { use_gpu(gpu_); }

  // Device memory. If the GPU has too little, arenas of plans that are not running are freed first. Throws OutOfMemory with
  // the size, the purpose and the free memory.
  BufferPtr allocate(int64_t bytes, const char* purpose = "an array");
  // Bytes of device memory that this process has allocated on the GPU.
  int64_t memory_in_use() const;
  // Pinned host memory, for copies from and to any GPU without staging.
  BufferPtr allocate_pinned(int64_t bytes);

  // Copies from and to pageable host memory, which may be reused when they return. to_host() waits for all work that
  // was enqueued before.
  void to_device(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);
  // Asynchronous copies from and to memory of allocate_pinned(). Records the event `done`, if there is one, after the
  // copy; wait_for(done) waits for the copy and not for work enqueued after it.
  void enqueue_copy_to_device(void* to, const void* from, int64_t bytes);
  void enqueue_copy_to_host(void* to, const void* from, int64_t bytes, cudaEvent_t done = nullptr);
  void wait_for(cudaEvent_t event);
  // Waits for all work that was enqueued before. wait_for_all() also waits until no WatchedWork is pending.
  void wait() { wait_until_idle(false); }
  void wait_for_all() { wait_until_idle(true); }

  // Work on this GPU that may never finish, such as a collective whose peer is gone. While the lane waits for its GPU,
  // it calls poll() repeatedly with the time at which the wait began. poll() throws if waiting is pointless, and
  // returns whether any of the work is still pending.
  class WatchedWork {
   public:
    virtual ~WatchedWork() = default;
    virtual bool poll(std::chrono::steady_clock::time_point waiting_since) = 0;
  };
  void watch(WatchedWork* work);
  // When it returns, poll() is not called any more.
  void unwatch(WatchedWork* work);

  // How often this thread has waited for a GPU. A program that never waits can be captured as a graph. Waits inside the
  // scope of an UncountedWaits, such as those of autotuning, do not count.
  static int64_t wait_count();
  class UncountedWaits {
   public:
    UncountedWaits() : before_(wait_count()) {}
    ~UncountedWaits() { set_wait_count(before_); }
    UncountedWaits(const UncountedWaits&) = delete;
    UncountedWaits& operator=(const UncountedWaits&) = delete;

   private:
    const int64_t before_;
  };
  // Enqueue a device-to-device copy, and zeros.
  void copy(void* to, const void* from, int64_t bytes);
  void clear(void* to, int64_t bytes);

  // Captures the work that `enqueue` enqueues as a graph, without running it. Rethrows what `enqueue` throws.
  cudaGraphExec_t capture(const std::function<void()>& enqueue);
  void replay(cudaGraphExec_t);
  // Waits for the GPU, then frees the graph.
  void destroy_graph(cudaGraphExec_t);
  // Whether the calling thread is inside capture().
  bool capturing() const { return capturing_thread_ == std::this_thread::get_id(); }

  // Work of a captured graph that the GPU skips or repeats by itself, as a condition says. A kernel sets the condition
  // with set_condition() of machine.cuh: before such work, and for repeated work again at its end. Needs CUDA 13.
  using GraphCondition = uint64_t;
  static bool has_graph_conditions();
  // Makes a condition for the graph, or the conditional work, that is being captured. REQUIRES: capturing().
  GraphCondition make_graph_condition();
  // Capture what `enqueue` enqueues. REQUIRES: capturing(), and the condition was made for what is being captured.
  void capture_if(GraphCondition condition, const std::function<void()>& enqueue) {
    capture_conditional(condition, false, enqueue);
  }
  void capture_while(GraphCondition condition, const std::function<void()>& enqueue) {
    capture_conditional(condition, true, enqueue);
  }

  // Marks `owner` as the most recent launch until other work is enqueued. While it is, the next launch follows it
  // directly in the stream. Allocating and freeing memory does not clear the marker.
  void mark_last_launch(const void* owner) { last_ = owner; }
  bool is_last_launch(const void* owner) const { return last_ == owner; }

  // The cuBLASLt handle, and its workspace of kBlasBytes.
  cublasLtHandle_t blas();
  void* blas_workspace();
  static constexpr size_t kBlasBytes = size_t{32} << 20;

 private:
  friend class CudaArena;
  friend class CudaStaging;
  friend class CudaStreams;
  CudaStream(int gpu, bool exclusive);
  class StreamsOfGpus;
  // Another runtime will use the GPU. Waits for the launches that did not expect it.
  void share();
  void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, const char* what);
  void capture_conditional(GraphCondition condition, bool repeats, const std::function<void()>& enqueue);
  // Counted as a wait; the next two functions are not.
  void wait_until_idle(bool all);
  void drain(bool all);
  // Polls the event, without sleeping for the duration `spin` unless work is watched; then backs off.
  static constexpr std::chrono::microseconds kSpinUnwatched{20000};
  void poll_until_done(cudaEvent_t event, bool all = false, std::chrono::microseconds spin = kSpinUnwatched);
  bool poll_watched(std::chrono::steady_clock::time_point waiting_since);
  static void set_wait_count(int64_t count);
  bool is_watched();
  // Frees arenas that were not used for longest, together at least `bytes` if there are as many. Returns whether it freed any.
  bool free_idle_arenas(int64_t bytes);
  struct Block;
  class StreamMarker;
  Block* acquire_block();
  void release_block(Block* block);
  static void free_device(void* block);
  static void free_pinned(void* block);
  bool try_enter() const noexcept;

  const int gpu_;  // index among the visible GPUs
  CudaInfo info_;
  std::atomic<bool> shared_ = false;  // with another runtime
  cudaStream_t stream_ = nullptr;
  cudaMemPool_t pool_ = nullptr;
  std::recursive_mutex capture_mutex_;
  std::atomic<std::thread::id> capturing_thread_ = std::thread::id();
  std::atomic<const void*> last_ = nullptr;
  BufferPtr blas_workspace_;
  cublasLtHandle_t blas_ = nullptr;
  std::mutex blocks_mutex_;
  Block* free_blocks_ = nullptr;
  std::vector<cudaEvent_t> free_events_;
  std::unique_ptr<CudaStaging> staging_;
  std::mutex arenas_mutex_;
  std::list<CudaArena*> arenas_;  // the last one was used most recently
  std::mutex watched_mutex_;      // held while poll() runs
  std::vector<WatchedWork*> watched_;
};

// The message of an OutOfMemory of a GPU. `held` is the memory that this process holds.
std::string gpu_out_of_memory_text(int64_t bytes, const char* purpose, int64_t free, int64_t total, int64_t held,
                                   const std::string& name);

}  // namespace lockstep
