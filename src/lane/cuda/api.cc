#include "lane/cuda/api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <initializer_list>

#include "base/check.h"
#include "lockstep/error.h"

namespace lockstep {
namespace {

// A library, or why there is none.
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
        "cuda: lib{} of CUDA {} is not there ({}); install CUDA's libraries, or set LD_LIBRARY_PATH to "
        "where they are, or leave LOCKSTEP_PLATFORM at cpu",
        base, *versions.begin(), failure);
  }

  template <class F>
  void find(F& function, const char* symbol) {
    if (!handle) return;
    function = reinterpret_cast<F>(dlsym(handle, symbol));
    if (!function) {
      failure = fmt::format("cuda: {} has no {}; it is too old: install CUDA 13", name, symbol);
      handle = nullptr;
    }
  }
};

template <class Functions>
struct Loaded {
  Functions functions;
  std::string failure;
};

const Loaded<CudaRuntime>& runtime() {
  static const auto* loaded = [] {
    auto* out = new Loaded<CudaRuntime>;
    Library library("cudart", {"13", "12"});
#define RUNTIME(name) library.find(out->functions.name, #name);
#include "lane/cuda/functions.def"
    if (!library.handle) out->failure = library.failure;
    return out;
  }();
  return *loaded;
}

// Their versions as the libraries of CUDA 13 and 12 are named.
const Loaded<CudaCompiler>& compiler() {
  static const auto* loaded = [] {
    auto* out = new Loaded<CudaCompiler>;
    Library library("nvrtc", {"13", "12"});
#define COMPILER(name) library.find(out->functions.name, #name);
#include "lane/cuda/functions.def"
    if (!library.handle) out->failure = library.failure;
    return out;
  }();
  return *loaded;
}

const Loaded<CudaBlas>& blas() {
  static const auto* loaded = [] {
    auto* out = new Loaded<CudaBlas>;
    Library library("cublasLt", {"13", "12"});
#define BLAS(name) library.find(out->functions.name, #name);
#include "lane/cuda/functions.def"
    if (!library.handle) out->failure = library.failure;
    return out;
  }();
  return *loaded;
}

struct Devices {
  int count = 0;
  std::string why_not;

  Devices() {
    why_not = runtime().failure;
    if (!why_not.empty()) return;
    const cudaError_t error = cuda().cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return;
    count = 0;
    int driver = 0, own = 0;
    cuda().cudaDriverGetVersion(&driver);
    cuda().cudaRuntimeGetVersion(&own);
    if (error == cudaErrorInsufficientDriver && driver > 0)
      why_not = fmt::format(
          "cuda: the driver is for CUDA {}.{} and the libraries are of {}.{}; install a newer driver, or "
          "leave LOCKSTEP_PLATFORM at cpu",
          driver / 1000, driver % 1000 / 10, own / 1000, own % 1000 / 10);
    else
      why_not = fmt::format(
          "cuda: no GPU ({}); see what nvidia-smi and CUDA_VISIBLE_DEVICES say, or leave LOCKSTEP_PLATFORM at cpu",
          error == cudaSuccess ? "none is visible" : cuda().cudaGetErrorString(error));
  }
};

const Devices& found() {
  static const Devices devices;
  return devices;
}

}  // namespace

int cuda_device_count() { return found().count; }
std::string cuda_why_not() { return found().why_not; }

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

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string text =
      fmt::format("cuda: {}: {} ({})", what, cuda().cudaGetErrorString(error), cuda().cudaGetErrorName(error));
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  throw Error(text);
}
void check_compiler(nvrtcResult error, const char* what) {
  if (error != NVRTC_SUCCESS) throw_error("cuda: {}: {}", what, cuda_compiler().nvrtcGetErrorString(error));
}
void check_blas(cublasStatus_t error, const char* what) {
  if (error != CUBLAS_STATUS_SUCCESS) throw_error("cuda: {}: {}", what, cuda_blas().cublasLtGetStatusString(error));
}

}  // namespace lockstep
