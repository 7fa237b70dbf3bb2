// Pool: the threads of one CPU lane. Regions of parallel tasks start in about a microsecond while the workers are hot.
//
//   Pool pool;                                             // as many threads as the process has CPUs
//   pool.parallel_for(tiles, [&](int64_t tile, int thread) { ... });
//
// Any thread may call any method; regions of different callers follow one another. A region started inside a task of
// the same pool runs inline on that task's thread. (Two pools must not start regions on each other from inside tasks:
// they could wait for one another.) Which thread gets which task changes from run to run, so results that must not
// change may depend on the task index only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lane/function_ref.h"

namespace lockstep {

struct PoolConfig {
  int threads = 0;  // including the caller; 0: available_cpus()
};

class Pool {
 public:
  explicit Pool(const PoolConfig& options = {});
  // REQUIRES: no region is running.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // How many threads may run tasks at once, the caller included. Thread indices are below it.
  int threads() const { return threads_; }

  // Runs f(task, thread) once for every task in [0, tasks) and returns when all are done. The calling thread takes
  // part. When a task throws, tasks not yet started are left out and one of the exceptions is rethrown here. Allocates
  // nothing.
  template <class F>
  void parallel_for(int64_t tasks, F&& f) {
    run(tasks, Task(f));
  }

  // Cuts [0, n) into pieces of `grain` (the last may be shorter) and runs f(begin, end, thread) for each of them. The
  // pieces do not depend on the number of threads.
  template <class F>
  void parallel_range(int64_t n, int64_t grain, F&& f) {
    grain = std::max<int64_t>(grain, 1);
    parallel_for((n + grain - 1) / grain,
                 [&](int64_t piece, int thread) { f(piece * grain, std::min(n, (piece + 1) * grain), thread); });
  }

  // Memory of at least `bytes` bytes, aligned to 64, that belongs to the running thread until its task ends; the
  // contents are undefined at the start. Every (thread, slot) is its own region; asking again for the same one may move
  // it. Slots 0 to 3 are for callers of this layer and for epilogues, 4 to 7 for the kernels in lane/cpu. Throws
  // OutOfMemory. REQUIRES: called from inside a task, with that task's thread index.
  void* scratch(int thread, int slot, int64_t bytes) {
    Region& region = scratch_[static_cast<size_t>(thread)].slots[slot];
    if (bytes > region.bytes) [[unlikely]]
      grow(region, bytes);
    return region.memory;
  }
  void* scratch(int thread, int64_t bytes) { return scratch(thread, 0, bytes); }
  static constexpr int kScratchSlots = 8;

 private:
  using Task = FunctionRef<void(int64_t, int)>;
  struct Region {
    void* memory = nullptr;
    int64_t bytes = 0;
  };
  struct alignas(64) Scratch {
    Region slots[kScratchSlots];
  };

  void run(int64_t tasks, Task task);
  void run_inline(int64_t tasks, Task task, int thread);
  void run_region(int64_t tasks, Task task);
  void take_tasks(int thread);
  void work(int thread);
  static void grow(Region& region, int64_t bytes);

  int threads_ = 1;
  std::vector<Scratch> scratch_;
  std::mutex callers_;  // held by the thread whose region runs

  // The word all threads watch: see pool.cc for its fields.
  alignas(64) std::atomic<uint32_t> state_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};

  // The region being run. Written by the caller while no worker has joined.
  alignas(64) Task task_;
  std::atomic<int64_t> tasks_{0};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  alignas(64) std::atomic<int64_t> next_{0};

  std::vector<std::thread> workers_;
};

}  // namespace lockstep
