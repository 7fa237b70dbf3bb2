// NCCL, loaded when first needed. Without it GPUs exchange data through host memory. Safe from any thread.
#pragma once

#include "hardware/cuda/api.h"  // first: NCCL's header includes others that overload CUDA's functions

#if __has_include(<nccl.h>)
#include <nccl.h>
// Non-blocking communicators exist since 2.14, but aborting them is safe only since 2.18.
#if NCCL_VERSION_CODE >= 21800
#define LOCKSTEP_WITH_NCCL

namespace lockstep {

struct CudaNccl {
#define NCCL(name) decltype(&::name) name = nullptr;
#include "hardware/cuda/functions.def"
};

// Null if libnccl.so.2 cannot be loaded.
const CudaNccl* cuda_nccl();

}  // namespace lockstep
#endif
#endif
