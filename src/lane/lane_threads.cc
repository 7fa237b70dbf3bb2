#include "lane/lane_threads.h"

#include "base/start_thread.h"
#include "lane/trace.h"

namespace lockstep {

LaneThreads::LaneThreads(int64_t count) : lanes_(static_cast<size_t>(count)) {
  if (count == 1) return;
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i].thread = start_thread([this, i] { serve(i); });
}

LaneThreads::~LaneThreads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (LaneThread& lane : lanes_)
    if (lane.thread.joinable()) lane.thread.join();
}

void LaneThreads::serve(size_t lane) {
  Trace::set_lane(static_cast<int>(lane));
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    lock.unlock();
    std::exception_ptr failure;
    std::string message;
    try {
      work_(static_cast<int64_t>(lane));
    } catch (const std::exception& error) {
      failure = std::current_exception();
      message = error.what();
    }
    lock.lock();
    lanes_[lane].failure = failure;
    const bool report = failure && !failure_reported_;
    failure_reported_ |= report;
    if (report && failed_) {
      lock.unlock();
      failed_(message);
      lock.lock();
    }
    if (--left_ == 0) done_.notify_one();
  }
}

void LaneThreads::run(FunctionRef<void(int64_t)> f, FunctionRef<void(const std::string&)> failed) {
  const std::lock_guard running(running_);
  if (lanes_.size() == 1) return f(0);
  {
    std::unique_lock lock(mutex_);
    work_ = f;
    failed_ = failed;
    left_ = lanes_.size();
    failure_reported_ = false;
    ++round_;
    wake_.notify_all();
    // No deadline here: lanes either compute or wait for one another in collectives, which have a deadline.
    done_.wait(lock, [&] { return left_ == 0; });
  }
  for (LaneThread& lane : lanes_)
    if (const std::exception_ptr failure = std::exchange(lane.failure, nullptr)) std::rethrow_exception(failure);
}

}  // namespace lockstep
