// cuFFT, loaded when first needed. Without it Fourier transforms are computed on the host. Safe from any thread.
#pragma once

#include "hardware/cuda/api.h"

#if __has_include(<cufft.h>)
#define LOCKSTEP_WITH_CUFFT
#include <cufft.h>

namespace lockstep {

struct CudaFftLibrary {
#define FFT(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};

// Null if libcufft.so.12 (of CUDA 13) or libcufft.so.11 cannot be loaded.
const CudaFftLibrary* cuda_fft();

}  // namespace lockstep
#endif
