#include "hardware/nvml.h"

#include <dlfcn.h>

#include <array>
#include <type_traits>

namespace lockstep {
namespace {

// The parts of NVML's interface that are used here. Its version 1 structs never change.
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlUtilization {
  unsigned int gpu, memory;
};
constexpr int kNvmlSuccess = 0;

struct Nvml {
  int (*init)() = nullptr;
  int (*count)(unsigned int*) = nullptr;
  int (*handle)(unsigned int, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  bool usable = false;

  Nvml() {
    void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
      return function != nullptr;
    };
    usable = find(init, "nvmlInit_v2") && find(count, "nvmlDeviceGetCount_v2") &&
             find(handle, "nvmlDeviceGetHandleByIndex_v2") && find(name, "nvmlDeviceGetName") &&
             find(memory, "nvmlDeviceGetMemoryInfo") && find(utilization, "nvmlDeviceGetUtilizationRates") &&
             init() == kNvmlSuccess;
  }
};

}  // namespace

std::vector<GpuLoad> gpu_loads() {
  static const Nvml nvml;
  std::vector<GpuLoad> out;
  unsigned int count = 0;
  if (!nvml.usable || nvml.count(&count) != kNvmlSuccess) return out;
  for (unsigned int i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    std::array<char, 96> name = {};
    NvmlMemory memory = {};
    NvmlUtilization utilization = {};
    if (nvml.handle(i, &device) != kNvmlSuccess || nvml.memory(device, &memory) != kNvmlSuccess) continue;
    const bool named = nvml.name(device, name.data(), name.size() - 1) == kNvmlSuccess;
    const bool known = nvml.utilization(device, &utilization) == kNvmlSuccess;
    out.push_back({.name = named ? name.data() : "GPU",
                   .used = static_cast<int64_t>(memory.used),
                   .total = static_cast<int64_t>(memory.total),
                   .busy = known ? static_cast<int64_t>(utilization.gpu) : -1});
  }
  return out;
}

}  // namespace lockstep
