// WorkQueue: threads of its own for work that takes long, so that a server's threads do not wait for it. submit() and
// waiting() are safe from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep::cli {

class WorkQueue {
 public:
  using Work = std::function<void()>;

  // At most `most` pieces of work wait.
  WorkQueue(int threads, size_t most);
  // Drops the work that waits, and returns when the rest has ended.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Returns false if too much work waits. REQUIRES: `work` throws nothing.
  bool submit(Work work);
  size_t waiting() const;

 private:
  void run();

  const size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> waiting_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::cli
