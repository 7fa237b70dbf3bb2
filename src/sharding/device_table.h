// DeviceTable: the devices of the job as this process sees them, fixed at first use. A part of the runtime. Safe to use
// from any thread.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/os/environment.h"
#include "hardware/gpus.h"
#include "lockstep/devices.h"

namespace lockstep::detail {

// The maximum number of CPU devices of a process.
inline constexpr int kMaxCpuDevices = 131072;

// The number of CPU devices from the environment; 1 if it is not set. Empty variables are ignored. Throws
// Error for a value that is not a valid number.
int detect_cpu_devices(const Environment&);
// Same, but nullopt if it is not set.
std::optional<int> cpu_devices_from(const Environment&);

// The platform from the environment: "cpu", "cuda" or "auto", also if it is not set. Throws Error for another value.
std::string platform_from(const Environment&);

// The environment variables of this process that affect devices.
Environment device_variables();

class DeviceTable {
 public:
  using ReadEnvironment = Environment (*)();
  using DetectGpus = GpuStatus (*)();
  explicit DeviceTable(ReadEnvironment read = device_variables, DetectGpus detect = detect_gpus)
      : read_(read), detect_(detect) {}

  // Override the environment. Throw Error for invalid values, and once devices() has been called.
  void set_cpu_devices(int n);
  void set_platform(const std::string& name);
  Platform platform();
  // Why the CPU is used although NVIDIA hardware is present and the CPU was not requested; else empty.
  std::string why_no_gpu();

  // Whether devices() has been called.
  bool used();
  // The number of devices of this process alone. May fix the platform, but not the devices.
  int local_count();
  // Forgets the detected platform, after GPUs were assigned to this or other processes. REQUIRES: !used().
  void redetect_gpus();
  // Joins a job as process `index`, in which process p has counts[p] devices. REQUIRES: !used().
  void join(int index, const std::vector<int>& counts);
  // Leaves the job. The next devices() determines the devices again.
  void leave();

  // The devices of all processes, numbered consecutively, process by process.
  const std::vector<Device>& devices();
  const std::vector<Device>& local_devices();
  int process_index();
  int process_count();

  // That of the current runtime.
  static DeviceTable& current();

 private:
  std::mutex mutex_;
  const ReadEnvironment read_;
  const DetectGpus detect_;
  void fix_devices();
  Platform chosen_platform();
  int chosen_count();

  std::optional<int> requested_count_;
  std::string requested_platform_;    // empty: from the environment
  std::optional<Platform> platform_;  // once chosen
  std::string why_no_gpu_;
  int gpu_devices_ = 1;  // valid once a GPU is the platform
  int index_ = 0;
  std::vector<int> counts_;              // per process; empty: not in a job
  std::vector<Device> devices_, local_;  // empty: not fixed yet
};

}  // namespace lockstep::detail
