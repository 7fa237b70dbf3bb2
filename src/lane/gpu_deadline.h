// GpuDeadline: bounds a wait on the GPU. CUDA reports a lost GPU as an error, but a GPU that hangs reports nothing.
// A GpuDeadline is used by one thread; the static functions are safe from any thread.
#pragma once

#include <chrono>
#include <string>

namespace lockstep {

// One wait, which begins when the object is constructed.
class GpuDeadline {
 public:
  using Clock = std::chrono::steady_clock;

  // Polls without sleeping for the duration `spin`, then every 50 microseconds.
  explicit GpuDeadline(Clock::duration spin) : spin_(spin) {}

  // Call between two polls: yields or sleeps. Throws DeviceLost when the timeout has passed; `gpu` names the GPU.
  void pause_or_throw(const std::string& gpu) const;
  // Restarts the timeout, because the wait depends on other work that has its own deadline.
  void restart() { since_ = Clock::now(); }

  Clock::time_point began() const { return began_; }

  // The timeout of the current runtime: RuntimeOptions::gpu_timeout at the first call. Throws Error if its variable is invalid.
  static std::chrono::duration<double> timeout();
  // Whether a wait of this process has timed out. From then on no CUDA call that synchronizes with the GPU is safe: it
  // may block forever. This includes freeing memory that the GPU may still write, and a normal process exit.
  static bool any_expired();

 private:
  const Clock::time_point began_ = Clock::now();
  Clock::time_point since_ = began_;  // start of the timeout
  const Clock::duration spin_;
};

}  // namespace lockstep
