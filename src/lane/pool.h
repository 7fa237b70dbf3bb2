// Pool: the threads of one CPU lane. Regions of parallel tasks start in about a microsecond while the workers are hot.
//
//   Pool pool;                                             // compute_threads() threads
//   pool.parallel_for(tiles, [&](int64_t tile, int thread) { ... });
//
// A region is one parallel_for(): tasks that run in parallel. Safe from any thread; regions of different callers run
// one after another. A region started inside a task of the same pool runs inline on that task's thread. Tasks of two
// pools must not start regions on each other's pool: they could deadlock. The assignment of tasks to threads varies
// from run to run, so reproducible results may depend on the task index only.
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
  int threads = 0;  // including the caller; 0: compute_threads()
};

class Pool {
 public:
  explicit Pool(const PoolConfig& options = {});
  // REQUIRES: no region is running.
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // The number of threads that run tasks, including the caller. Thread indices are below it.
  int threads() const { return threads_; }

  // Runs f(task, thread) once for every task in [0, tasks) and returns when all are done. The calling thread takes
  // part. If a task throws, tasks that have not started are skipped and one of the exceptions is rethrown. Does not
  // allocate.
  template <class F>
  void parallel_for(int64_t tasks, F&& f) {
    run(tasks, Task(f));
  }

  // Divides [0, n) into chunks of `grain` elements (the last may be shorter) and runs f(begin, end, thread) for each.
  // The chunks do not depend on the number of threads.
  template <class F>
  void parallel_range(int64_t n, int64_t grain, F&& f) {
    grain = std::max<int64_t>(grain, 1);
    parallel_for((n + grain - 1) / grain,
                 [&](int64_t chunk, int thread) { f(chunk * grain, std::min(n, (chunk + 1) * grain), thread); });
  }

  // Returns memory of at least `bytes` bytes, aligned to 64, that the thread may use until its task ends. Contents are
  // undefined. Each (thread, slot) is separate memory; another call for the same slot may move it. Slots 0 to 3 are for
  // callers of this layer and for epilogues, 4 to 7 for the kernels in lane/cpu. Throws OutOfMemory.
  // REQUIRES: called from inside a task, with that task's thread index.
  void* scratch(int thread, int slot, int64_t bytes) {
    Memory& memory = scratch_[static_cast<size_t>(thread)].slots[slot];
    if (bytes > memory.bytes) [[unlikely]]
      grow(memory, bytes);
    return memory.data;
  }
  void* scratch(int thread, int64_t bytes) { return scratch(thread, 0, bytes); }
  static constexpr int kScratchSlots = 8;

 private:
  using Task = FunctionRef<void(int64_t, int)>;
  struct Memory {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  struct alignas(64) Scratch {
    Memory slots[kScratchSlots];
  };

  void run(int64_t tasks, Task task);
  void run_inline(int64_t tasks, Task task, int thread);
  void run_region(int64_t tasks, Task task);
  void take_tasks(int thread);
  void work(int thread);
  static void grow(Memory& memory, int64_t bytes);

  int threads_ = 1;
  std::vector<Scratch> scratch_;
  std::mutex callers_;  // held by the thread whose region runs

  // The word that all threads wait on: see pool.cc for its fields.
  alignas(64) std::atomic<uint32_t> state_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};

  // The current region. Written by the caller before workers can join.
  alignas(64) Task task_;
  std::atomic<int64_t> tasks_{0};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  alignas(64) std::atomic<int64_t> next_{0};

  std::vector<std::thread> workers_;
};

}  // namespace lockstep
