#include "hardware/cuda/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/check.h"
#include "hardware/cuda/dnn.h"
#include "hardware/cuda/fft.h"
#include "hardware/cuda/nccl.h"
#include "hardware/cuda/solver.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// A loaded library, or why it cannot be loaded.
struct Library {
  void* handle = nullptr;
  std::string name, failure;

  Library(const char* base, std::initializer_list<const char*> versions) {
    for (const char* version : versions)
      for (const char* folder : {"", LOCKSTEP_CUDA_LIBRARIES "/"}) {
        name = fmt::format("{}lib{}.so.{}", folder, base, version);
        handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle) return;
        if (failure.empty()) failure = dlerror();
      }
    failure = fmt::format(
        "cuda: cannot load lib{}.so.{} ({}); install it, or set LD_LIBRARY_PATH to its folder, or use --platform cpu "
        "(LOCKSTEP_PLATFORM=cpu)",
        base, *versions.begin(), failure);
  }

  template <class F>
  void find(F& function, const char* symbol) {
    if (!handle) return;
    function = reinterpret_cast<F>(dlsym(handle, symbol));
    if (!function) {
      failure = fmt::format("cuda: {} lacks {}: it is too old; install CUDA 13", name, symbol);
      handle = nullptr;
    }
  }
};

template <class Functions>
struct Loaded {
  Functions functions;
  std::string file, failure;

  void set_result(const Library& library) {
    if (library.handle)
      file = library.name;
    else
      failure = library.failure;
  }
};

const Loaded<CudaRuntime>& runtime() {
  static const auto* loaded = [] {
    auto* out = new Loaded<CudaRuntime>;
    Library library("cudart", {"13", "12"});
#define RUNTIME(name) library.find(out->functions.name, #name);
#include "hardware/cuda/functions.def"
    out->set_result(library);
    return out;
  }();
  return *loaded;
}

const Loaded<CudaCompiler>& compiler() {
  static const auto* loaded = [] {
    auto* out = new Loaded<CudaCompiler>;
    Library library("nvrtc", {"13", "12"});
#define COMPILER(name) library.find(out->functions.name, #name);
#include "hardware/cuda/functions.def"
    out->set_result(library);
    return out;
  }();
  return *loaded;
}

const Loaded<CudaBlas>& blas() {
  static const auto* loaded = [] {
    auto* out = new Loaded<CudaBlas>;
    Library library("cublasLt", {"13", "12"});
#define BLAS(name) library.find(out->functions.name, #name);
#include "hardware/cuda/functions.def"
    out->set_result(library);
    return out;
  }();
  return *loaded;
}

}  // namespace

#ifdef LOCKSTEP_WITH_CONDITIONAL_NODES
const CudaGraphs* cuda_graphs() {
  static const CudaGraphs* const loaded = [] {
    auto* out = new CudaGraphs;
    Library library("cudart", {"13"});
#define GRAPH(name) library.find(out->name, #name);
#include "hardware/cuda/functions.def"
    return library.handle ? out : nullptr;
  }();
  return loaded;
}
#endif

#ifdef LOCKSTEP_WITH_CUDNN
const CudaDnn* cuda_dnn() {
  static const CudaDnn* const loaded = [] {
    auto* out = new CudaDnn;
    Library library("cudnn", {"9"});
#define DNN(name) library.find(out->name, #name);
#include "hardware/cuda/functions.def"
    return library.handle ? out : nullptr;
  }();
  return loaded;
}
#endif

#ifdef LOCKSTEP_WITH_CUFFT
const CudaFftLibrary* cuda_fft() {
  static const CudaFftLibrary* const loaded = [] {
    auto* out = new CudaFftLibrary;
    Library library("cufft", {"12", "11"});
#define FFT(name) library.find(out->name, #name);
#include "hardware/cuda/functions.def"
    return library.handle ? out : nullptr;
  }();
  return loaded;
}
#endif

#ifdef LOCKSTEP_WITH_CUSOLVER
const CudaSolverLibrary* cuda_solver() {
  static const CudaSolverLibrary* const loaded = [] {
    auto* out = new CudaSolverLibrary;
    Library blas("cublas", {"13", "12"}), solver("cusolver", {"12", "11"});
#define CUBLAS(name) blas.find(out->name, #name);
#define SOLVER(name) solver.find(out->name, #name);
#include "hardware/cuda/functions.def"
    return blas.handle && solver.handle ? out : nullptr;
  }();
  return loaded;
}
#endif

#ifdef LOCKSTEP_WITH_NCCL
const CudaNccl* cuda_nccl() {
  static const CudaNccl* const loaded = [] {
    auto* out = new CudaNccl;
    Library library("nccl", {"2"});
#define NCCL(name) library.find(out->name, #name);
#include "hardware/cuda/functions.def"
    return library.handle ? out : nullptr;
  }();
  return loaded;
}
#endif

std::string cuda_load_failure() {
  for (const std::string* failure : {&runtime().failure, &compiler().failure, &blas().failure})
    if (!failure->empty()) return *failure;
  return "";
}

std::vector<GpuLibrary> cuda_libraries() {
  std::vector<GpuLibrary> out = {{"cudart", runtime().file, runtime().failure},
                                 {"nvrtc", compiler().file, compiler().failure},
                                 {"cublasLt", blas().file, blas().failure}};
  const auto add = [&](const char* name, const char* version, const char* without) {
    const Library library(name, {version});
    out.push_back({name, library.handle ? library.name : "", library.failure, without});
  };
  add("cudnn", "9", "convolutions are slow; install cuDNN 9 for CUDA 13 (libcudnn9-cuda-13)");
  add("cusolver", "12", "matrices are factored on the host; install cuSOLVER and cuBLAS of CUDA 13");
  add("cufft", "12", "Fourier transforms are computed on the host; install cuFFT of CUDA 13");
  add("nccl", "2", "GPUs exchange data through host memory, slowly; install NCCL 2.18 or newer (libnccl2)");
  return out;
}

const CudaRuntime& cuda() {
  if (!runtime().failure.empty()) throw Error(runtime().failure);
  return runtime().functions;
}
const CudaCompiler& cuda_compiler() {
  if (!compiler().failure.empty()) throw Error(compiler().failure);
  return compiler().functions;
}
const CudaBlas& cuda_blas() {
  if (!blas().failure.empty()) throw Error(blas().failure);
  return blas().functions;
}

int use_gpu(int gpu) {
  thread_local int current = -1;
  if (current != gpu) check_gpu_opened(cuda().cudaSetDevice(gpu), gpu);
  return std::exchange(current, gpu);
}

cudaEvent_t new_cuda_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cuda().cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "create an event");
  return event;
}

void check_compiler(nvrtcResult error, const char* what) {
  if (error != NVRTC_SUCCESS) throw_error("cuda: {}: {}", what, cuda_compiler().nvrtcGetErrorString(error));
}
void check_blas(cublasStatus_t error, const char* what) {
  if (error == CUBLAS_STATUS_SUCCESS) return;
  throw_library_error(error == CUBLAS_STATUS_ALLOC_FAILED, what, cuda_blas().cublasLtGetStatusString(error));
}

}  // namespace lockstep
