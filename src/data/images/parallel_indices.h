// parallel_indices(): independent work on the elements of a list in several threads. Safe from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/start_thread.h"
#include "lane/cpus.h"

namespace lockstep::detail {

// Calls f(i) for each i in [0, count), in up to compute_threads() threads and at least `grain` calls a thread. If calls
// throw, the exception of the lowest index among those that were reached is rethrown, after all threads have ended.
template <class F>
void parallel_indices(int64_t count, int64_t grain, const F& f) {
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  int64_t failed = count;
  std::exception_ptr error;
  const auto work = [&] {
    for (int64_t i = 0; (i = next++) < count;) {
      try {
        f(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
        next = count;
      }
    }
  };
  const int64_t threads = std::clamp<int64_t>(count / grain, 1, compute_threads());
  std::vector<std::thread> workers;
  try {
    for (int64_t i = 1; i < threads; ++i) workers.push_back(start_thread(work));
  } catch (const std::system_error&) {  // no more threads: those that started do the work
  }
  work();
  for (std::thread& worker : workers) worker.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep::detail
