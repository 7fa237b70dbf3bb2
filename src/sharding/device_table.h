// DeviceTable: the devices that a process sees, decided at first use. Safe from any thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/devices.h"

namespace lockstep::detail {

using Environment = std::map<std::string, std::string>;

// The most CPU devices that a process may have.
inline constexpr int kMostCpuDevices = 131072;

// What the environment says about the number of CPU devices; 1 when it says nothing. Empty variables say nothing.
// Throws Error for anything but a number.
int detect_cpu_devices(const Environment&);
// The same; nothing when it says nothing.
std::optional<int> said_devices(const Environment&);

// The variables that decide about devices, as this process has them.
Environment device_variables();

// Whether this process can compute on a GPU.
struct GpuState {
  bool usable = false;
  std::string why_not;  // where not: the reason and the remedy
  bool seen = false;    // there is NVIDIA hardware: why it is not used is worth a line
  int devices = 1;      // of a process that was not told how many: one for each GPU of its own
};
// As this machine is; opens nothing where there is no NVIDIA hardware. Defined in lane/, which knows GPUs.
GpuState look_for_gpus();

class DeviceTable {
 public:
  using ReadEnvironment = Environment (*)();
  using LookForGpus = GpuState (*)();
  explicit DeviceTable(ReadEnvironment read, LookForGpus look = look_for_gpus) : read_(read), look_(look) {}

  // Throw Error when devices() was called before.
  void set_cpu_devices(int n);
  void set_platform(const std::string& name);
  Platform platform();
  // Why platform() is the CPU although there is NVIDIA hardware and nobody asked for the CPU; else empty.
  std::string why_no_gpu();

  // Whether devices() was called.
  bool used();
  // How many devices this process has by itself; decides about the platform at most.
  int own_count();
  // GPUs have become this process's own, or others': platform() looks again. REQUIRES: !used().
  void look_again();
  // This is process `index`, and process p has counts[p] devices. REQUIRES: !used().
  void join(int index, const std::vector<int>& counts);
  // Alone again: devices() are decided anew.
  void leave();

  // Of all processes: numbered through, process by process.
  const std::vector<Device>& devices();
  const std::vector<Device>& local_devices();
  int process_index();
  int process_count();

  // That of this process.
  static DeviceTable& instance();

 private:
  std::mutex mutex_;
  const ReadEnvironment read_;
  const LookForGpus look_;
  void decide();
  Platform chosen_platform();
  int chosen_count();

  std::optional<int> wanted_;
  std::string wanted_platform_;       // empty: what the environment says
  std::optional<Platform> platform_;  // once chosen
  std::string why_no_gpu_;
  int gpu_devices_ = 1;  // once a GPU is the platform
  int index_ = 0;
  std::vector<int> counts_;              // of each process; empty: this one is alone
  std::vector<Device> devices_, local_;  // empty: not decided yet
};

}  // namespace lockstep::detail
