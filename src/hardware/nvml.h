// What the GPUs of this machine are doing, by NVIDIA's management library (NVML). The library is loaded at the first
// call; no CUDA context is created. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct GpuLoad {
  std::string name;   // "NVIDIA H200"
  int64_t used = 0;   // bytes of memory
  int64_t total = 0;  // bytes of memory
  int64_t busy = -1;  // percent of the last second or less in which a kernel ran; -1: unknown
};

// One element for each GPU of the machine. Empty without GPUs and without the library.
std::vector<GpuLoad> gpu_loads();

}  // namespace lockstep
