// CUDA's libraries, opened when first needed: a program that computes on the CPU neither needs nor loads them. Safe
// from any thread.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "lane/gpu_report.h"

namespace lockstep {

struct CudaRuntime {
#define RUNTIME(name) decltype(&::name) name = nullptr;
#include "lane/cuda/functions.def"
};
struct CudaCompiler {
#define COMPILER(name) decltype(&::name) name = nullptr;
#include "lane/cuda/functions.def"
};
struct CudaBlas {
#define BLAS(name) decltype(&::name) name = nullptr;
#include "lane/cuda/functions.def"
};

// Whether there is a GPU to compute on; why_not() says what is missing and what to do, empty when nothing is.
int cuda_device_count();
std::string cuda_why_not();
// Those that are this process's own, of the visible ones, and that of each of its lanes. REQUIRES: there is one.
std::vector<int> gpus_to_use();
std::vector<int> lane_gpus();

// Why a library that is always needed cannot be opened, empty when all can be; and all that are of use, whether there
// or not. They open them.
std::string cuda_failure();
std::vector<GpuLibrary> cuda_libraries();

// Each throws Error, with what was looked for and the remedy, when its library is not there.
const CudaRuntime& cuda();
const CudaCompiler& cuda_compiler();
const CudaBlas& cuda_blas();

// This thread's calls go to that GPU, of those visible, from now on. Returns to which they went before, -1 where none
// was chosen. Nothing else may choose one.
int use_gpu(int gpu);
// An event of that GPU's that only tells whether it has come.
cudaEvent_t new_cuda_event();

// Throw when a call failed, naming the op or the launch where it is known (GpuLaunch): OutOfMemory when memory was
// short, DeviceLost when the GPU is out of order, else Error; `what` is what was tried.
void check_cuda(cudaError_t, const char* what);
// The same of a GPU that this process begins to use: others may have its memory, or all of it.
void check_gpu_opened(cudaError_t, int gpu);
void check_compiler(nvrtcResult, const char* what);
void check_blas(cublasStatus_t, const char* what);
// One of the libraries has said no: OutOfMemory or Error, with what it `said`.
[[noreturn]] void throw_of_library(bool for_want_of_memory, const char* what, const char* said);

}  // namespace lockstep
