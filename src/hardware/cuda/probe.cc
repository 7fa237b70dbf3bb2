#include "hardware/cuda/probe.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/os/environment.h"
#include "hardware/gpu_lanes.h"
#include "hardware/gpus.h"
#include "lockstep/error.h"

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
  out.visible = environment_variable_even_if_empty("CUDA_VISIBLE_DEVICES");
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

const CudaFacts& known_cuda_facts() { return found().facts; }

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

}  // namespace lockstep
