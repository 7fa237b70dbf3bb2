// GpuPatience: a wait for a GPU, which ends one day. A GPU that is lost says so; one that hangs says nothing.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

// So many seconds: what LOCKSTEP_GPU_TIMEOUT says, or half an hour where it says nothing. Throws Error when it is not a
// number above 0.
std::chrono::duration<double> parse_gpu_timeout(const std::optional<std::string>& said);

// One wait, from when it is made. For one thread.
class GpuPatience {
 public:
  using Clock = std::chrono::steady_clock;

  // As long as `awake` it looks all the time, then every 50 microseconds.
  explicit GpuPatience(Clock::duration awake) : awake_(awake) {}

  // Between two looks. Throws DeviceLost when the wait has lasted too long; `name` is that of the GPU.
  void rest(const std::string& name) const;
  // There is something else that is waited for, by its own deadline: this one begins when that is over.
  void put_off() { since_ = Clock::now(); }

  Clock::time_point began() const { return began_; }

  // What the environment says, once; throws as parse_gpu_timeout() does.
  static std::chrono::duration<double> timeout();
  // Whether a wait of this process was given up. Then nothing may be called that waits for the GPU by itself, such as
  // to free what it may still write to, or to end the process in order.
  static bool is_given_up();

 private:
  const Clock::time_point began_ = Clock::now();
  Clock::time_point since_ = began_;  // from when on it may last for so long
  const Clock::duration awake_;
};

}  // namespace lockstep
