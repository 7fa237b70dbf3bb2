// Lanes: the lanes of a runtime in this process, made on first use. There is one for each GPU (hardware/gpu_lanes.h); on the CPU
// RuntimeOptions::cpu_lanes divides the cores among several, for example one per NUMA node. Tests use several lanes to
// run partitioned programs without a network. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lane/lane.h"
#include "lane/lane_threads.h"
#include "lane/pool.h"

namespace lockstep {

// Makes a lane, given its index and a pool with its share of the cores, which outlives it.
using MakeLane = std::function<std::unique_ptr<Lane>(int64_t index, Pool& pool)>;

class Lanes {
 public:
  // Those of the current runtime. Throws like local_lane_count().
  static Lanes& current();
  Lanes() : Lanes(local_lane_count()) {}
  // Makes `count` lanes with `make`. Empty: CpuLane, or CudaLane if the platform is cuda.
  explicit Lanes(int64_t count, MakeLane make = {});
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  int64_t count() const { return static_cast<int64_t>(lanes_.size()); }
  // The lane of programs that are not partitioned: all cores, or the first GPU.
  Lane& main();
  // A lane of partitioned programs. A single lane is main().
  Lane& lane(int64_t index);
  // All cores of the process, for work outside of programs.
  Pool& host_pool() { return host_pool_; }
  // Hold it while a program is compiled or run, and while other work is enqueued: another thread may be capturing a
  // graph.
  std::mutex& run_mutex() { return run_mutex_; }

  // Runs f(index) for all lanes at the same time, each on its own thread. See LaneThreads::run().
  void run(FunctionRef<void(int64_t)> f, FunctionRef<void(const std::string&)> failed = {}) { threads_.run(f, failed); }

 private:
  // A lane that is made on first use.
  struct LazyLane {
    std::unique_ptr<Pool> pool;  // null: host_pool_
    std::unique_ptr<Lane> owned;
    std::atomic<Lane*> lane = nullptr;
  };
  Lane& make(LazyLane& place, int64_t index);

  const MakeLane make_;
  Pool host_pool_;
  std::mutex run_mutex_;
  std::mutex making_;
  LazyLane main_;
  std::vector<LazyLane> lanes_;  // a single one is not used: it is main_
  LaneThreads threads_;
};

}  // namespace lockstep
