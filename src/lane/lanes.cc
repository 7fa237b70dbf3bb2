#include "lane/lanes.h"

#include "base/runtime_settings.h"
#include "base/start_thread.h"
#include "lane/gpu_report.h"
#include "lane/memory.h"
#include "lockstep/devices.h"

namespace lockstep {

Lanes& Lanes::local() {
  static Lanes* lanes =
      new Lanes(platform() == Platform::cuda ? gpu_lane_count() : detail::runtime_option(&RuntimeOptions::cpu_lanes));
  return *lanes;
}

Lanes::Lanes(int64_t count) {
  const int64_t cpus = available_cpus();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t threads = cpus / count + (i < cpus % count ? 1 : 0);
    lanes_.push_back(std::make_unique<Lane>(count == 1 ? 1 : static_cast<int>(std::max<int64_t>(threads, 1))));
  }
  if (count == 1) return;  // a single lane runs on the caller's thread
  for (size_t i = 0; i < lanes_.size(); ++i) lanes_[i]->thread = start_thread([this, i] { serve(i); });
}

Lanes::~Lanes() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (auto& lane : lanes_)
    if (lane->thread.joinable()) lane->thread.join();
}

void Lanes::serve(size_t lane) {
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
    lanes_[lane]->failure = failure;
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

void Lanes::run(FunctionRef<void(int64_t)> f, FunctionRef<void(const std::string&)> failed) {
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
  for (auto& lane : lanes_)
    if (const std::exception_ptr failure = std::exchange(lane->failure, nullptr)) std::rethrow_exception(failure);
}

}  // namespace lockstep
