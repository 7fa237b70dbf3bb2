// Whether kernels can be compiled here, which needs NVRTC but no GPU. Safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "lane/cuda/code.h"
#include "lockstep/error.h"
#include "ops/cuda/kernels.h"

namespace lockstep {

inline bool has_cuda_compiler() {
  try {
    cuda_compiler();
    return true;
  } catch (const Error&) {
    return false;
  }
}
// Compiles a kernel for an architecture ("sm_90") with little optimization, to see that it compiles.
inline std::vector<char> compile_quickly(const std::string& text, const std::string& architecture) {
  return compile_cuda(text, kernel_headers(), architecture, CudaOptimization::least);
}

#define LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER() \
  if (!has_cuda_compiler()) GTEST_SKIP() << "the CUDA compiler (NVRTC) is not available"

}  // namespace lockstep
