// The lanes of a process that has several, each with a thread pool, a work space and a host thread of its own: one for
// each of its GPUs (gpu_lanes.h); on the CPU LOCKSTEP_CPU_LANES=n divides the cores among n. One lane per NUMA node is
// the use on large machines; tests use it to run partitioned programs without a network. Safe from any thread.
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
  // Those of this process, made on first use and never destroyed. Throws Error when LOCKSTEP_CPU_LANES is not a number
  // from 1 to 1024, and as platform() does.
  static Lanes& local();

  explicit Lanes(int64_t count);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  int64_t count() const { return static_cast<int64_t>(lanes_.size()); }
  Pool& pool(int64_t lane) { return lanes_[static_cast<size_t>(lane)]->pool; }
  Arena& arena(int64_t lane) { return lanes_[static_cast<size_t>(lane)]->arena; }

  // f(lane) on every lane's thread at once. Returns when all are done; then rethrows what the lowest lane threw, after
  // having called `failed(message)` once, as soon as the first one threw, so that the others need not wait for it.
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
  bool told_ = false, stop_ = false;
};

}  // namespace lockstep
