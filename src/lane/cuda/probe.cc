#include "lane/cuda/probe.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "lane/gpu_lanes.h"
#include "lane/gpu_report.h"
#include "lockstep/error.h"
#include "sharding/device_table.h"

namespace lockstep {
namespace {

constexpr const char* kUseCpu = "or use --platform cpu (LOCKSTEP_PLATFORM=cpu)";

struct Found {
  CudaFacts facts = cuda_facts();
  std::string why_not = why_no_gpu(facts);
};

const Found& found() {
  static const Found* const all = new Found;
  return *all;
}

std::string visible_text(const CudaFacts& facts) {
  return facts.visible ? fmt::format("CUDA_VISIBLE_DEVICES is \"{}\"", *facts.visible)
                       : "CUDA_VISIBLE_DEVICES is not set";
}

}  // namespace

CudaFacts cuda_facts() {
  CudaFacts out;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) out.visible = visible;
  out.device_files = nvidia_hardware_present();
  if (!out.device_files) return out;
  out.driver_library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr;
  if (!out.driver_library) return out;
  out.runtime_failure = cuda_load_failure();
  if (!out.runtime_failure.empty()) return out;
  out.error = cuda().cudaGetDeviceCount(&out.count);
  if (out.error != cudaSuccess) {
    out.count = 0;
    out.error_text = cuda().cudaGetErrorString(out.error);
  }
  cuda().cudaDriverGetVersion(&out.driver);
  cuda().cudaRuntimeGetVersion(&out.runtime);
  return out;
}

std::string why_no_gpu(const CudaFacts& facts) {
  if (!facts.device_files)
    return fmt::format(
        "cuda: no NVIDIA driver is running (/dev/nvidiactl does not exist); install it, or start the container with "
        "GPUs (--gpus all, --nv), {}",
        kUseCpu);
  if (!facts.driver_library)
    return fmt::format(
        "cuda: cannot load the driver's library libcuda.so.1; install the driver, or start the container with "
        "--gpus all or --nv, {}",
        kUseCpu);
  if (!facts.runtime_failure.empty()) return facts.runtime_failure;
  if (facts.error == cudaSuccess && facts.count > 0) return "";
  // Without any driver CUDA reports that it is too old.
  if (facts.error == cudaErrorInsufficientDriver && facts.driver == 0)
    return fmt::format("cuda: no NVIDIA driver is running; install it, or check nvidia-smi, {}", kUseCpu);
  if (facts.error == cudaErrorInsufficientDriver)
    return fmt::format("cuda: the driver supports CUDA {}, but the libraries are CUDA {}; install a newer driver, {}",
                       cuda_version_text(facts.driver), cuda_version_text(facts.runtime), kUseCpu);
  if (facts.visible && (facts.error == cudaSuccess || facts.error == cudaErrorNoDevice))
    return fmt::format(
        "cuda: no GPU is visible: {}; set it to the numbers of the GPUs to use, such as 0, or unset it, {}",
        visible_text(facts), kUseCpu);
  return fmt::format("cuda: no GPU is usable: {}; check nvidia-smi, {}",
                     facts.error_text.empty() ? "none is visible" : facts.error_text, kUseCpu);
}

int cuda_device_count() { return found().facts.count; }

std::string cuda_why_not() {
  if (!found().why_not.empty()) return found().why_not;
  const auto own = assigned_gpus();
  return own ? own->why_none : "";
}

std::vector<int> gpus_to_use() {
  if (const auto own = assigned_gpus()) return own->gpus;
  std::vector<int> all(static_cast<size_t>(cuda_device_count()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int> lane_gpus() {
  return assign_gpus_to_lanes(gpus_to_use(), detail::DeviceTable::instance().local_count(), gpu_lanes_variable());
}

namespace {

// The GPUs that lanes use. Sets why_not if the settings are wrong.
std::vector<int> used_gpus(std::string& why_not) {
  try {
    std::vector<int> used = lane_gpus();
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    return used;
  } catch (const Error& error) {
    why_not = error.what();
    return {};
  }
}

GpuReport report(bool all) {
  const CudaFacts& facts = found().facts;
  GpuReport out;
  out.built_in = true;
  out.seen = facts.device_files;
  out.driver = cuda_version_text(facts.driver);
  out.runtime = cuda_version_text(facts.runtime);
  out.why_not = cuda_why_not();
  if (!facts.device_files) return out;
  if (all) out.libraries = cuda_libraries();
  if (out.why_not.empty()) out.used = used_gpus(out.why_not);
  std::optional<int> before;  // the GPU that was current
  const auto why_not_use = [&](int gpu) -> std::string {
    try {
      const int used = use_gpu(gpu);
      if (!before) before = used;
      return "";
    } catch (const std::exception& error) {  // another process may use it exclusively, or all its memory
      return error.what();
    }
  };
  for (int i = 0; i < facts.count; ++i) {
    if (!all && (out.used.empty() || i != out.used[0])) continue;
    cudaDeviceProp properties{};
    size_t free = 0, total = 0;
    const std::string why_not = why_not_use(i);
    if (cuda().cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      out.gpus.push_back({.name = "unknown GPU", .why_not = why_not});
      continue;
    }
    const bool memory_known = why_not.empty() && cuda().cudaMemGetInfo(&free, &total) == cudaSuccess;
    out.gpus.push_back({properties.name, static_cast<int64_t>(properties.totalGlobalMem),
                        memory_known ? static_cast<int64_t>(free) : -1, properties.major, properties.minor,
                        properties.multiProcessorCount, why_not});
  }
  if (before.value_or(-1) >= 0) why_not_use(*before);
  return out;
}

}  // namespace

GpuReport report_gpus() { return report(true); }
GpuReport report_first_gpu() { return report(false); }

}  // namespace lockstep
