// cuDNN, opened when first needed. What computes without it is slower, not wrong. Safe from any thread.
#pragma once

#if __has_include(<cudnn.h>)
#define LOCKSTEP_WITH_CUDNN
#include <cudnn.h>

namespace lockstep {

// cuDNN calls these old; they serve plain convolutions, and every version 9 has them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
struct CudaDnn {
#define DNN(name) decltype(&::name) name = nullptr;
#include "lane/cuda/functions.def"
};
#pragma GCC diagnostic pop

// Null when libcudnn.so.9 is not there.
const CudaDnn* cuda_dnn();

}  // namespace lockstep
#endif
