#include "cli/work_queue.h"

#include <utility>

#include "base/start_thread.h"

namespace lockstep::cli {

WorkQueue::WorkQueue(int threads, size_t most) : most_(most) {
  for (int i = 0; i < threads; ++i) threads_.push_back(start_thread([this] { run(); }));
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& each : threads_) each.join();
}

bool WorkQueue::submit(Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_) return false;
    waiting_.push_back(std::move(work));
  }
  changed_.notify_one();
  return true;
}

size_t WorkQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

void WorkQueue::run() {
  for (;;) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
      if (ended_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace lockstep::cli
