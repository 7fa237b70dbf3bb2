// LaneThreads: the host threads of several lanes, which run a function on all lanes at the same time. Safe from any
// thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lane/function_ref.h"

namespace lockstep {

class LaneThreads {
 public:
  // A single lane has no thread of its own: it runs on the caller's.
  explicit LaneThreads(int64_t count);
  ~LaneThreads();
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  // Runs f(lane) on all threads in parallel and returns when all have finished. As soon as the first lane throws, calls
  // failed(message) once, so that the other lanes can stop waiting for it. Rethrows the exception of the lowest lane
  // that threw.
  void run(FunctionRef<void(int64_t)> f, FunctionRef<void(const std::string&)> failed = {});

 private:
  struct LaneThread {
    std::thread thread;
    std::exception_ptr failure;
  };
  void serve(size_t lane);

  std::vector<LaneThread> lanes_;
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
