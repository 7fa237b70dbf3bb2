#include <fmt/format.h>

#include <algorithm>

#include "hardware/cuda/api.h"
#include "hardware/gpu_launch.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// The GPU, its link or its driver failed: a restart may succeed, on this GPU or another.
bool is_device_loss(cudaError_t error) {
  constexpr cudaError_t kLosses[] = {cudaErrorECCUncorrectable,
                                     cudaErrorDevicesUnavailable,
                                     cudaErrorNvlinkUncorrectable,
                                     cudaErrorHardwareStackError,
                                     cudaErrorLaunchFailure,
                                     cudaErrorLaunchTimeout,
                                     cudaErrorNoDevice,
                                     cudaErrorInvalidDevice,
                                     cudaErrorSystemNotReady,
                                     cudaErrorMpsServerNotReady,
                                     cudaErrorMpsConnectionFailed,
                                     cudaErrorMpsRpcFailure,
                                     cudaErrorContextIsDestroyed,
                                     cudaErrorUnknown};
  return std::find(std::begin(kLosses), std::end(kLosses), error) != std::end(kLosses);
}

// A kernel is wrong: a restart would fail in the same way.
bool is_kernel_bug(cudaError_t error) {
  constexpr cudaError_t kDefects[] = {cudaErrorIllegalAddress, cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
                                      cudaErrorInvalidPc,      cudaErrorInvalidAddressSpace, cudaErrorAssert};
  return std::find(std::begin(kDefects), std::end(kDefects), error) != std::end(kDefects);
}

constexpr const char* kMemoryRemedy = "; use a smaller batch, or see with nvidia-smi which processes use the rest";

}  // namespace

void throw_library_error(bool out_of_memory, const char* what, const char* reason) {
  const std::string text = fmt::format("cuda: {}{}: {}", what, GpuLaunch::where(), reason);
  if (out_of_memory) throw OutOfMemory(text + kMemoryRemedy);
  throw Error(text);
}

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string text = fmt::format("cuda: {}{}: {} ({})", what, GpuLaunch::where(),
                                       cuda().cudaGetErrorString(error), cuda().cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text + kMemoryRemedy);
  if (is_device_loss(error))
    throw DeviceLost(
        text +
        "; this process can no longer use the GPU: restart to resume from the last checkpoint, and check nvidia-smi "
        "and the kernel log (Xid)");
  if (is_kernel_bug(error))
    throw Error(
        text +
        "; this is a bug in lockstep: please report it with the message under CUDA_LAUNCH_BLOCKING=1, which names the "
        "op");
  throw Error(text);
}

void check_gpu_opened(cudaError_t error, int gpu) {
  const auto text = [&](const char* what, const char* remedy) {
    return fmt::format("cuda: GPU {} {}: {} ({}); {}, or use --platform cpu (LOCKSTEP_PLATFORM=cpu)", gpu, what,
                       cuda().cudaGetErrorString(error), cuda().cudaGetErrorName(error), remedy);
  };
  if (error == cudaErrorMemoryAllocation)
    throw OutOfMemory(text("has too little free memory for another process",
                           "a process needs about 500 MiB before its first array; see with nvidia-smi which processes "
                           "use it"));
  if (error == cudaErrorDevicesUnavailable)
    throw DeviceLost(text("is in use by another process",
                          "in compute mode Exclusive Process only one process can use it; find it with nvidia-smi"));
  check_cuda(error, "select the GPU");
}

}  // namespace lockstep
