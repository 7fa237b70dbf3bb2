// CpuLane: executes programs on the CPU of this process: one thread pool, one program at a time. local() is safe from
// any thread; run_mutex() guards the rest.
#pragma once

#include <mutex>

#include "lane/buffer.h"
#include "lane/pool.h"

namespace lockstep {

class CpuLane {
 public:
  // The lane of this process, made on first use. Never destroyed, so that it outlives every static object that still
  // runs programs.
  static CpuLane& local();

  Pool& pool() { return pool_; }
  // Hold it while a program runs.
  std::mutex& run_mutex() { return run_mutex_; }
  // Memory for the temporaries of the running program.
  Arena& arena() { return arena_; }

 private:
  CpuLane() = default;
  Pool pool_;
  std::mutex run_mutex_;
  Arena arena_;
};

}  // namespace lockstep
