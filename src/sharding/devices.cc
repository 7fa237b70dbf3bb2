#include "lockstep/devices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "base/runtime_parts.h"
#include "lockstep/error.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace detail {
namespace {

constexpr std::string_view kVariables[] = {"LOCKSTEP_NUM_CPU_DEVICES", "JAX_NUM_CPU_DEVICES"};
constexpr std::string_view kXlaVariable = "XLA_FLAGS";
constexpr std::string_view kPlatformVariable = "LOCKSTEP_PLATFORM";
constexpr std::string_view kXlaFlag = "--xla_force_host_platform_device_count=";

int parse_count(std::string_view text, std::string_view where) {
  return static_cast<int>(number_in_variable("devices", where, text, 1, kMaxCpuDevices));
}

// The value of the flag. The last occurrence wins, as in XLA.
std::optional<std::string_view> find_xla_flag(std::string_view flags) {
  std::optional<std::string_view> value;
  constexpr std::string_view kSpace = " \t\r\n";
  for (size_t begin = flags.find_first_not_of(kSpace); begin != std::string_view::npos;
       begin = flags.find_first_not_of(kSpace, begin)) {
    const size_t end = std::min(flags.find_first_of(kSpace, begin), flags.size());
    const std::string_view flag = flags.substr(begin, end - begin);
    if (flag.starts_with(kXlaFlag)) value = flag.substr(kXlaFlag.size());
    begin = end;
  }
  return value;
}

void check_platform(const std::string& name, std::string_view where) {
  if (name != "cpu" && name != "cuda" && name != "auto")
    throw_error("{} is \"{}\"; use cpu, cuda or auto", where, name);
}

}  // namespace

DeviceTable& DeviceTable::current() { return runtime_part<DeviceTable>(); }

int detect_cpu_devices(const Environment& environment) { return cpu_devices_from(environment).value_or(1); }

std::optional<int> cpu_devices_from(const Environment& environment) {
  for (std::string_view variable : kVariables) {
    const auto found = environment.find(std::string(variable));
    if (found != environment.end() && !found->second.empty()) return parse_count(found->second, variable);
  }
  if (const auto found = environment.find(std::string(kXlaVariable)); found != environment.end())
    if (const auto value = find_xla_flag(found->second))
      return parse_count(*value, fmt::format("{} in {}", kXlaFlag.substr(0, kXlaFlag.size() - 1), kXlaVariable));
  return std::nullopt;
}

std::string platform_from(const Environment& environment) {
  const auto found = environment.find(std::string(kPlatformVariable));
  if (found == environment.end() || found->second.empty()) return "auto";
  check_platform(found->second, fmt::format("devices: {}", kPlatformVariable));
  return found->second;
}

Environment device_variables() {
  Environment environment;
  auto read = [&](std::string_view name) {
    const std::string key(name);
    if (const auto value = environment_variable(key.c_str())) environment[key] = *value;
  };
  for (std::string_view variable : kVariables) read(variable);
  read(kXlaVariable);
  read(kPlatformVariable);
  return environment;
}

void DeviceTable::set_cpu_devices(int n) {
  if (n < 1 || n > kMaxCpuDevices) throw_error("set_cpu_devices: {} devices; use 1 to {}", n, kMaxCpuDevices);
  const std::lock_guard lock(mutex_);
  if (!devices_.empty())
    throw_error(
        "set_cpu_devices: {} devices are already in use, but {} are requested; call it before anything that uses "
        "devices",
        devices_.size(), n);
  requested_count_ = n;
}

void DeviceTable::set_platform(const std::string& name) {
  check_platform(name, "set_platform: the platform");
  const std::lock_guard lock(mutex_);
  if (!devices_.empty() && name != "auto" && name != to_string(devices_[0].platform))
    throw_error("set_platform: {} devices are already in use; call it before anything that uses devices",
                to_string(devices_[0].platform));
  requested_platform_ = name;
  if (devices_.empty()) platform_.reset();
}

Platform DeviceTable::platform() {
  const std::lock_guard lock(mutex_);
  return chosen_platform();
}

std::string DeviceTable::why_no_gpu() {
  const std::lock_guard lock(mutex_);
  chosen_platform();
  return why_no_gpu_;
}

// REQUIRES: the lock is held.
Platform DeviceTable::chosen_platform() {
  if (platform_) return *platform_;
  const std::string wanted = requested_platform_.empty() ? platform_from(read_()) : requested_platform_;
  why_no_gpu_.clear();
  if (wanted == "cpu") return *(platform_ = Platform::cpu);

  const GpuStatus gpus = detect_();
  if (!gpus.usable && wanted == "cuda") throw Error(gpus.why_not);
  if (!gpus.usable && gpus.present) why_no_gpu_ = gpus.why_not;
  gpu_devices_ = gpus.devices;
  return *(platform_ = gpus.usable ? Platform::cuda : Platform::cpu);
}

bool DeviceTable::used() {
  const std::lock_guard lock(mutex_);
  return !devices_.empty();
}

// REQUIRES: the lock is held.
int DeviceTable::chosen_count() {
  if (requested_count_) return *requested_count_;
  if (const std::optional<int> n = cpu_devices_from(read_())) return *n;
  return chosen_platform() == Platform::cuda ? gpu_devices_ : 1;
}

int DeviceTable::local_count() {
  const std::lock_guard lock(mutex_);
  return chosen_count();
}

void DeviceTable::redetect_gpus() {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(devices_.empty(), "{} devices are in use", devices_.size());
  platform_.reset();
}

void DeviceTable::join(int index, const std::vector<int>& counts) {
  const std::lock_guard lock(mutex_);
  LOCKSTEP_CHECK(devices_.empty(), "{} devices are in use", devices_.size());
  index_ = index;
  counts_ = counts;
  platform_.reset();
}

void DeviceTable::leave() {
  const std::lock_guard lock(mutex_);
  index_ = 0;
  counts_.clear();
  devices_.clear();
  local_.clear();
  platform_.reset();
}

void DeviceTable::fix_devices() {
  const std::lock_guard lock(mutex_);
  if (!devices_.empty()) return;
  std::vector<int> counts = counts_;
  if (counts.empty()) counts = {chosen_count()};
  std::vector<Device> all;
  for (size_t p = 0; p < counts.size(); ++p)
    for (int i = 0; i < counts[p]; ++i) {
      all.push_back({static_cast<int>(all.size()), chosen_platform(), static_cast<int>(p)});
      if (static_cast<int>(p) == index_) local_.push_back(all.back());
    }
  devices_ = std::move(all);
}

const std::vector<Device>& DeviceTable::devices() {
  fix_devices();
  return devices_;
}

const std::vector<Device>& DeviceTable::local_devices() {
  fix_devices();
  return local_;
}

int DeviceTable::process_index() {
  const std::lock_guard lock(mutex_);
  return index_;
}

int DeviceTable::process_count() {
  const std::lock_guard lock(mutex_);
  return counts_.empty() ? 1 : static_cast<int>(counts_.size());
}

}  // namespace detail

std::string to_string(Platform platform) { return platform == Platform::cpu ? "cpu" : "cuda"; }

std::string to_string(const Device& device) { return fmt::format("{}:{}", to_string(device.platform), device.id); }

std::string jax_name(const Device& device) {
  return fmt::format("{}Device(id={})", device.platform == Platform::cpu ? "Cpu" : "Cuda", device.id);
}

std::string jax_name(const std::vector<Device>& list) {
  std::vector<std::string> names;
  for (const Device& device : list) names.push_back(jax_name(device));
  return fmt::format("[{}]", fmt::join(names, ", "));
}

using detail::DeviceTable;

const std::vector<Device>& devices() { return DeviceTable::current().devices(); }
const std::vector<Device>& local_devices() { return DeviceTable::current().local_devices(); }
int device_count() { return static_cast<int>(devices().size()); }
int local_device_count() { return static_cast<int>(local_devices().size()); }
int process_index() { return DeviceTable::current().process_index(); }
int process_count() { return DeviceTable::current().process_count(); }
void set_platform(Platform platform) { DeviceTable::current().set_platform(to_string(platform)); }
void set_platform(const std::string& name) { DeviceTable::current().set_platform(name); }
Platform platform() { return DeviceTable::current().platform(); }
void set_cpu_devices(int n) { DeviceTable::current().set_cpu_devices(n); }

}  // namespace lockstep

size_t std::hash<lockstep::Device>::operator()(const lockstep::Device& device) const noexcept {
  lockstep::Hasher hasher;
  hasher.add(static_cast<uint64_t>(device.id));
  hasher.add(static_cast<uint64_t>(device.platform));
  hasher.add(static_cast<uint64_t>(device.process_index));
  return hasher.value();
}
