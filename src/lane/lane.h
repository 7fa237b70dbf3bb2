// CpuLane: what executes programs on the CPU of this process: one thread pool, one program at a time.
#pragma once

#include <mutex>

#include "lane/buffer.h"
#include "lane/pool.h"

namespace lockstep {

class CpuLane {
 public:
  // The lane of this process, made on first use. Never destroyed, so that it outlives every static that still runs
  // programs.
  static CpuLane& local();

  Pool& pool() { return pool_; }
  // Held while a program runs.
  std::mutex& running() { return running_; }
  // The running program's work space.
  Arena& arena() { return arena_; }

 private:
  CpuLane() = default;
  Pool pool_;
  std::mutex running_;
  Arena arena_;
};

}  // namespace lockstep
