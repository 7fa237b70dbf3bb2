// Whether kernels can be compiled here, which needs NVRTC but no GPU. Safe from any thread.
#pragma once

#include "lane/cuda/code.h"
#include "lockstep/error.h"

namespace lockstep {

inline bool has_cuda_compiler() {
  try {
    cuda_compiler();
    return true;
  } catch (const Error&) {
    return false;
  }
}
#define LOCKSTEP_SKIP_WITHOUT_CUDA_COMPILER() \
  if (!has_cuda_compiler()) GTEST_SKIP() << "the CUDA compiler (NVRTC) is not available"

}  // namespace lockstep
