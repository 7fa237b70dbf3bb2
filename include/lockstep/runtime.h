// RuntimeOptions: how this process uses its CPU, its GPUs and its cache. An option that is not set comes from its
// environment variable, else it has the default. docs/reference/environment.md lists all settings with their flags.
//
//   configure({.gpu_math = "full", .gpu_timeout = std::chrono::minutes(5)});  // before anything that uses devices
//
// The platform and the number of devices are set in lockstep/devices.h, and those of several processes in
// lockstep/distributed.h. Safe to call from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

struct RuntimeOptions {
  // Lanes of this process on the CPU, which divide its cores. LOCKSTEP_CPU_LANES; 1.
  std::optional<int64_t> cpu_lanes = {};
  // "tf32", or "full": f32 products without TF32, and divisions rounded as on the CPU. LOCKSTEP_CUDA_MATH; "tf32".
  std::optional<std::string> gpu_math = {};
  // How long a wait for a GPU may take until it fails with DeviceLost. LOCKSTEP_GPU_TIMEOUT, in seconds; 1800 s.
  std::optional<std::chrono::duration<double>> gpu_timeout = {};
  // false: small instructions are separate kernels instead of one persistent kernel. LOCKSTEP_PERSISTENT_KERNEL; true.
  std::optional<bool> persistent_kernel = {};
  // false: GPUs exchange data through host memory. LOCKSTEP_NCCL; true.
  std::optional<bool> nccl = {};
  // Folder of downloaded data sets and compiled GPU kernels. LOCKSTEP_CACHE_DIR; $XDG_CACHE_HOME/lockstep, else
  // ~/.cache/lockstep.
  std::optional<std::string> cache_dir = {};
  // The thread level requested from MPI: "multiple", "serialized" or "funneled". LOCKSTEP_MPI_THREADS; "multiple".
  std::optional<std::string> mpi_threads = {};
};

// Sets the options that have a value, and keeps the others. Throws Error for an invalid value, and for an option that is
// already in use; then nothing is changed.
void configure(const RuntimeOptions& options);

}  // namespace lockstep
