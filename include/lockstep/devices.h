// Devices: what meshes are made of, and how many there are. A process has one CPU device unless told otherwise:
// set_cpu_devices(8), else LOCKSTEP_NUM_CPU_DEVICES, else JAX_NUM_CPU_DEVICES, else
// --xla_force_host_platform_device_count in XLA_FLAGS. Devices beyond the first are virtual: they share the cores of
// the process. Safe from any thread.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

enum class Platform { cpu, cuda };

struct Device {
  int id = 0;  // unique among the devices of one platform, over all processes
  Platform platform = Platform::cpu;
  int process_index = 0;

  auto operator<=>(const Device&) const = default;
};

// "cpu", "cuda".
std::string to_string(Platform);
// "cpu:0".
std::string to_string(const Device&);
// What JAX prints: "CpuDevice(id=0)", "CudaDevice(id=0)"; for several "[CpuDevice(id=0), CpuDevice(id=1)]".
std::string jax_name(const Device&);
std::string jax_name(const std::vector<Device>&);

// All devices of all processes; they stay the same once asked for. Throws Error when a variable that says how many
// there are does not hold a number.
const std::vector<Device>& devices();
// Those of this process.
const std::vector<Device>& local_devices();
int device_count();
int local_device_count();

// Which process this is, from 0, and how many there are.
int process_index();
int process_count();

// What this process computes on: what set_platform() said before devices were used, else what LOCKSTEP_PLATFORM says
// ("cpu", "cuda" or "auto"), else "auto": a GPU where one can be used, else the CPU. On a GPU virtual devices share it
// as they share the cores. platform() throws Error, with the reason and the remedy, where "cuda" was asked for and
// cannot be.
void set_platform(Platform);
// "cpu", "cuda" or "auto"; throws Error for anything else.
void set_platform(const std::string& name);
Platform platform();

// How many CPU devices this process has. Throws Error unless 1 <= n <= 131072, and after devices were used.
void set_cpu_devices(int n);

}  // namespace lockstep

template <>
struct std::hash<lockstep::Device> {
  size_t operator()(const lockstep::Device&) const noexcept;
};
