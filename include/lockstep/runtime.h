// Runtime: the devices, lanes and connections that computations use. RuntimeOptions: how a runtime uses the CPU, the
// GPUs and the cache. An option that is not set comes from its environment variable, else it has the default.
// docs/reference/environment.md lists all settings with their flags.
//
//   configure({.gpu_math = "full", .gpu_timeout = std::chrono::minutes(5)});  // before anything that uses devices
//
// The platform and the number of devices are set in lockstep/devices.h, and those of several processes in
// lockstep/distributed.h. Safe to call from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/detail/duration.h"

namespace lockstep {

struct RuntimeOptions {
  // Lanes on the CPU, which divide the cores of this process. LOCKSTEP_CPU_LANES; 1.
  std::optional<int64_t> cpu_lanes = {};
  // Threads that compute on the CPU. 0: one for each core of this process; processes of one host that may use the same
  // cores divide them, and each binds its threads to its share. LOCKSTEP_CPU_THREADS; 0.
  std::optional<int64_t> cpu_threads = {};
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

// Sets options of the current runtime: those that have a value; the others stay. Throws Error for an invalid value, and
// for an option that is already in use; then nothing is changed.
void configure(const RuntimeOptions& options);

namespace detail {
class RuntimeParts;
}

// Owns what computations use: the options, the devices and their platform, the GPUs assigned to the process, the lanes
// with their memory and compiled programs, and the job that the process has joined. Most programs use the process's
// runtime and never name it. Further ones are for programs and tests that need several sets of devices:
//
//   Runtime four({.cpu_lanes = 4});
//   RuntimeScope scope(four);
//   set_cpu_devices(8);               // devices of `four`
//
// configure(), set_platform(), set_cpu_devices() and distributed::initialize() act on the current runtime, and an array
// belongs to the runtime in which it was made. Threads of the library have the current runtime of the thread that
// started them. Other new threads begin with the process's runtime, and open a RuntimeScope to use another one.
//
// The versions of compiled functions that were made for a runtime go with it.
//
// REQUIRES: when a runtime is destroyed, its arrays are gone, no thread uses it, and distributed::shutdown() has been called
// if it has joined a job.
class Runtime {
 public:
  // Throws Error for an invalid value, as configure() does.
  explicit Runtime(const RuntimeOptions& options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // The runtime of the innermost RuntimeScope of this thread, else the process's. That one is made on first use and
  // never destroyed.
  static Runtime& current();

 private:
  friend class detail::RuntimeParts;
  const std::unique_ptr<detail::RuntimeParts> parts_;
};

// Makes a runtime the current one of this thread. Scopes of a thread end in reverse order.
// REQUIRES: the runtime outlives the scope.
class RuntimeScope {
 public:
  explicit RuntimeScope(Runtime& runtime);
  ~RuntimeScope();
  RuntimeScope(const RuntimeScope&) = delete;
  RuntimeScope& operator=(const RuntimeScope&) = delete;

 private:
  Runtime* const outer_;
};

}  // namespace lockstep
