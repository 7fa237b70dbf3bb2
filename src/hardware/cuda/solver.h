// cuSOLVER and cuBLAS, loaded when first needed. Without them matrices are factored on the host. Safe from any thread.
#pragma once

#include "hardware/cuda/api.h"

#if __has_include(<cusolverDn.h>) && __has_include(<cublas_v2.h>)
#define LOCKSTEP_WITH_CUSOLVER
#include <cublas_v2.h>
#include <cusolverDn.h>
// cuSOLVER 11.7.1 (of CUDA 12.6) and newer.
#if CUSOLVER_VERSION >= 11701
#define LOCKSTEP_WITH_SYEV_BATCHED
#endif

namespace lockstep {

struct CudaSolverLibrary {
#define CUBLAS(name) decltype(&::name) name = nullptr;
#define SOLVER(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};

// Null if libcusolver.so.12 or libcublas.so.13 (of CUDA 13), or those of CUDA 12, cannot be loaded.
const CudaSolverLibrary* cuda_solver();

}  // namespace lockstep
#endif
