// cuDNN, loaded when first needed. Without it convolutions are slower but correct. Safe from any thread.
#pragma once

#if __has_include(<cudnn.h>)
#define LOCKSTEP_WITH_CUDNN
#include <cudnn.h>

namespace lockstep {

// cuDNN deprecates these functions, but every version 9 has them, and they suffice for plain convolutions.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
struct CudaDnn {
#define DNN(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};
#pragma GCC diagnostic pop

// Null if libcudnn.so.9 cannot be loaded.
const CudaDnn* cuda_dnn();

}  // namespace lockstep
#endif
