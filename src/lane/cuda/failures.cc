#include <fmt/format.h>

#include <algorithm>

#include "lane/cuda/api.h"
#include "lane/gpu_launch.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// The GPU, its link or its driver failed: another start may find it well again, or find another one.
bool is_loss(cudaError_t error) {
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

// A kernel did what it must not: the next start would do the same.
bool is_defect(cudaError_t error) {
  constexpr cudaError_t kDefects[] = {cudaErrorIllegalAddress, cudaErrorIllegalInstruction,  cudaErrorMisalignedAddress,
                                      cudaErrorInvalidPc,      cudaErrorInvalidAddressSpace, cudaErrorAssert};
  return std::find(std::begin(kDefects), std::end(kDefects), error) != std::end(kDefects);
}

constexpr const char* kMakeRoom = "; use a smaller batch, or see with nvidia-smi who has the rest";

}  // namespace

void throw_of_library(bool for_want_of_memory, const char* what, const char* said) {
  const std::string text = fmt::format("cuda: {}{}: {}", what, GpuLaunch::where(), said);
  if (for_want_of_memory) throw OutOfMemory(text + kMakeRoom);
  throw Error(text);
}

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string text = fmt::format("cuda: {}{}: {} ({})", what, GpuLaunch::where(),
                                       cuda().cudaGetErrorString(error), cuda().cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text + kMakeRoom);
  if (is_loss(error))
    throw DeviceLost(
        text +
        "; the GPU can compute no more for this process: start again, which goes on from the last checkpoint, "
        "and see what nvidia-smi and the kernel's log (Xid) say of it");
  if (is_defect(error))
    throw Error(
        text +
        "; this is a defect of lockstep: please report it, with what it says under CUDA_LAUNCH_BLOCKING=1, which "
        "names the op");
  throw Error(text);
}

void check_gpu_opened(cudaError_t error, int gpu) {
  const auto text = [&](const char* what, const char* remedy) {
    return fmt::format("cuda: GPU {} {}: {} ({}); {}, or use --platform cpu (LOCKSTEP_PLATFORM=cpu)", gpu, what,
                       cuda().cudaGetErrorString(error), cuda().cudaGetErrorName(error), remedy);
  };
  if (error == cudaErrorMemoryAllocation)
    throw OutOfMemory(text("has no memory left for another process to begin with",
                           "a process takes some 500 MiB before its first array: see with nvidia-smi who has it"));
  if (error == cudaErrorDevicesUnavailable)
    throw DeviceLost(text("takes no other process now",
                          "see with nvidia-smi who has it: in compute mode Exclusive Process it is one's alone"));
  check_cuda(error, "choose the GPU");
}

}  // namespace lockstep
