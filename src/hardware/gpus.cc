#include "hardware/gpus.h"

#include <fmt/format.h>
#include <unistd.h>

#ifdef LOCKSTEP_WITH_CUDA
#include "hardware/cuda/probe.h"
#include "hardware/gpu_lanes.h"
#endif

namespace lockstep {

bool nvidia_hardware_present() {
  // Linux; WSL, where Windows has the driver.
  for (const char* file : {"/dev/nvidiactl", "/dev/dxg"})
    if (::access(file, F_OK) == 0) return true;
  return false;
}

std::string cuda_version_text(int version) {
  return version > 0 ? fmt::format("{}.{}", version / 1000, version % 1000 / 10) : "";
}

#ifdef LOCKSTEP_WITH_CUDA
int visible_gpu_count() { return cuda_device_count(); }

GpuStatus detect_gpus() {
  GpuStatus out;
  out.present = nvidia_hardware_present();
  out.why_not = cuda_why_not();
  out.usable = out.why_not.empty();
  if (out.usable) out.devices = default_gpu_device_count(gpus_to_use(), gpu_lanes_variable());
  return out;
}
#else
int visible_gpu_count() { return 0; }

// `present` is false even if there is hardware: a build without CUDA prints no note about unused GPUs.
GpuStatus detect_gpus() {
  return {.usable = false,
          .why_not =
              "cuda: this lockstep was built without CUDA; rebuild it with CUDA 12.8 or newer, or use --platform "
              "cpu (LOCKSTEP_PLATFORM=cpu)",
          .present = false};
}
#endif

}  // namespace lockstep
