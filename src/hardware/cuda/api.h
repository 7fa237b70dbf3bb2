// CUDA's libraries, loaded when first needed: a program that computes on the CPU neither needs nor loads them. Safe from
// any thread.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "hardware/gpus.h"

namespace lockstep {

struct CudaRuntime {
#define RUNTIME(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};
#if CUDART_VERSION >= 13000
#define LOCKSTEP_WITH_CONDITIONAL_NODES
// Functions for conditional nodes of graphs. Older versions of CUDA have them with other parameters.
struct CudaGraphs {
#define GRAPH(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};
// Null before CUDA 13. REQUIRES: cuda() can be loaded.
const CudaGraphs* cuda_graphs();
#endif
struct CudaCompiler {
#define COMPILER(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};
struct CudaBlas {
#define BLAS(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};

// The number of visible GPUs; and why none is usable, "cuda: fact; remedy", empty if one is.
int cuda_device_count();
std::string cuda_why_not();
// The GPUs assigned to this process, as indices of visible GPUs. REQUIRES: one is usable.
std::vector<int> gpus_to_use();

// Why a required library cannot be loaded, empty if all can be.
std::string cuda_load_failure();
// All required and optional libraries, found or missing. Loads them.
std::vector<GpuLibrary> cuda_libraries();

// Each throws Error with the file name and the remedy if its library cannot be loaded.
const CudaRuntime& cuda();
const CudaCompiler& cuda_compiler();
const CudaBlas& cuda_blas();

// Makes a visible GPU current for the calling thread. Returns the one that was current before, -1 if none. No other code
// may call cudaSetDevice().
int use_gpu(int gpu);
// An event without timing, on the current GPU.
cudaEvent_t new_cuda_event();

// Throw if a call failed: OutOfMemory, DeviceLost if the GPU is out of order, else Error. `what` names the call's purpose;
// the message also names the op or the launch (GpuLaunch).
void check_cuda(cudaError_t, const char* what);
// The same for the first use of a GPU, whose memory or compute mode may exclude this process.
void check_gpu_opened(cudaError_t, int gpu);
void check_compiler(nvrtcResult, const char* what);
void check_blas(cublasStatus_t, const char* what);
// Throws OutOfMemory or Error with a library's error text `reason`.
[[noreturn]] void throw_library_error(bool out_of_memory, const char* what, const char* reason);

}  // namespace lockstep
