// Devices: the elements of meshes. On the CPU devices are virtual and share the cores of the process. Their
// number is, in this order: set_cpu_devices(n), LOCKSTEP_NUM_CPU_DEVICES, JAX_NUM_CPU_DEVICES,
// --xla_force_host_platform_device_count in XLA_FLAGS, 1.
//
//   set_cpu_devices(8);                              // before any use of devices
//   Mesh mesh = make_mesh({{"data", 8}});
//
// All functions act on the current runtime (lockstep/runtime.h). Safe to call from any thread.
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
// The name that JAX prints: "CpuDevice(id=0)", "CudaDevice(id=0)"; for several "[CpuDevice(id=0),
// CpuDevice(id=1)]".
std::string jax_name(const Device&);
std::string jax_name(const std::vector<Device>&);

// All devices of all processes. The list is fixed at the first call. Throws Error when an environment
// variable for the number of devices is not a number.
const std::vector<Device>& devices();
// The devices of this process.
const std::vector<Device>& local_devices();
int device_count();
int local_device_count();

// The rank of this process, starting at 0, and the number of processes.
int process_index();
int process_count();

// Selects the platform, before devices are used. Without a call, LOCKSTEP_PLATFORM selects it ("cpu", "cuda"
// or "auto"). The default is "auto": a GPU if one is usable, else the CPU. On a GPU, virtual devices share
// the GPU.
void set_platform(Platform);
// Same by name: "cpu", "cuda" or "auto". Throws Error for any other name.
void set_platform(const std::string& name);
// The platform in use. Throws Error, with reason and remedy, when "cuda" was requested but no GPU is usable.
Platform platform();

// Sets the number of CPU devices of this process. Throws Error unless 1 <= n <= 131072, and once devices are
// in use.
void set_cpu_devices(int n);

}  // namespace lockstep

template <>
struct std::hash<lockstep::Device> {
  size_t operator()(const lockstep::Device&) const noexcept;
};
