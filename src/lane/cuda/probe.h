// Whether there is a GPU to compute on, and if not why: what the driver, the libraries and the variables say, put into
// words. Safe from any thread.
#pragma once

#include <optional>
#include <string>

#include "lane/cuda/api.h"

namespace lockstep {

// What is known of a machine.
struct CudaFacts {
  bool device_files = false;           // the driver's
  bool driver_library = false;         // libcuda.so.1 can be opened
  std::string runtime_failure;         // why CUDA's runtime cannot be opened; empty: it was
  cudaError_t error = cudaSuccess;     // of counting GPUs
  std::string error_text;              // in CUDA's words
  int count = 0;                       // GPUs that this process sees
  int driver = 0, runtime = 0;         // versions, as 13000
  std::optional<std::string> visible;  // CUDA_VISIBLE_DEVICES
};

// Of this machine. Opens no library where the one before it is not there.
CudaFacts cuda_facts();

// "cuda: fact; remedy"; empty: there is a GPU.
std::string why_no_gpu(const CudaFacts& facts);

}  // namespace lockstep
