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

// The numbers of CPU devices that a process may have. Ids of the devices of process p start at p times this, as in JAX.
inline constexpr int kMostCpuDevices = 131072;

// What the environment says about the number of CPU devices; 1 when it says nothing. Empty variables say nothing.
// Throws Error for anything but a number.
int detect_cpu_devices(const Environment&);

// The variables that detect_cpu_devices() reads, as this process has them.
Environment device_variables();

class DeviceTable {
 public:
  using ReadEnvironment = Environment (*)();
  explicit DeviceTable(ReadEnvironment read) : read_(read) {}

  // Throws Error when devices() was called before.
  void set_cpu_devices(int n);
  const std::vector<Device>& devices();

 private:
  std::mutex mutex_;
  const ReadEnvironment read_;
  std::optional<int> wanted_;
  std::vector<Device> devices_;  // empty: not decided yet
};

}  // namespace lockstep::detail
