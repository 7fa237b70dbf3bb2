// Finds out whether a GPU is usable, and if not why, from the driver, the libraries and the environment. Safe from any
// thread.
#pragma once

#include <optional>
#include <string>

#include "hardware/cuda/api.h"

namespace lockstep {

// The state of a machine, as found by cuda_facts().
struct CudaFacts {
  bool device_files = false;           // the driver's device files exist
  bool driver_library = false;         // libcuda.so.1 can be loaded
  std::string runtime_failure;         // why a CUDA library cannot be loaded; empty if all can be
  cudaError_t error = cudaSuccess;     // of cudaGetDeviceCount()
  std::string error_text;              // CUDA's text for it
  int count = 0;                       // visible GPUs
  int driver = 0, runtime = 0;         // versions, as 13000
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
};

// Examines this machine. Stops at the first thing that is missing, so that no library is loaded needlessly.
CudaFacts cuda_facts();

// The facts of this machine, examined once.
const CudaFacts& known_cuda_facts();

// "cuda: fact; remedy"; empty if a GPU is usable.
std::string why_no_gpu(const CudaFacts& facts);

}  // namespace lockstep
