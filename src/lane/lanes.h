// Lanes: the lanes of a process that has several. Each has a thread pool, an arena and a host thread. There is one lane
// for each GPU (gpu_lanes.h); on the CPU LOCKSTEP_CPU_LANES=n divides the cores among n lanes, for example one per NUMA
// node. Tests use several lanes to run partitioned programs without a network. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lane/buffer.h"
#include "lane/function_ref.h"
#include "lane/pool.h"

namespace lockstep {

class Lanes {
 public:
  // The process-wide instance, made on first use and never destroyed. Throws Error if LOCKSTEP_CPU_LANES is not a
  // number from 1 to 1024. Throws like platform().
  static Lanes& local();

  explicit Lanes(int64_t count);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  int64_t count() const { return static_cast<int64_t>(lanes_.size()); }
  Pool& pool(int64_t lane) { return lanes_[static_cast<size_t>(lane)]->pool; }
  Arena& arena(int64_t lane) { return lanes_[static_cast<size_t>(lane)]->arena; }

  // Runs f(lane) on all lanes' threads in parallel and returns when all have finished. As soon as the first lane
  // throws, calls failed(message) once, so that the other lanes can stop waiting for it. Rethrows the exception of the
  // lowest lane that threw.
  void run(FunctionRef<void(int64_t)> f, FunctionRef<void(const std::string&)> failed = {});

 private:
  struct Lane {
    explicit Lane(int threads) : pool({.threads = threads}) {}
    Pool pool;
    Arena arena;
    std::thread thread;
    std::exception_ptr failure;
  };
  void serve(size_t lane);

  std::vector<std::unique_ptr<Lane>> lanes_;
  std::mutex running_;  // one call of run() at a time
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  FunctionRef<void(int64_t)> work_;
  FunctionRef<void(const std::string&)> failed_;
  uint64_t round_ = 0;
  size_t left_ = 0;
  bool failure_reported_ = false, stop_ = false;
};

}  // namespace lockstep
