// NCCL, opened when first needed. Without it GPUs exchange values through the host's memory. Safe from any thread.
#pragma once

#include "lane/cuda/api.h"  // first: NCCL's header brings in others that overload CUDA's functions

#if __has_include(<nccl.h>)
#include <nccl.h>
// Calls that return before they are done came with 2.14; before 2.18 those were not safe to give up.
#if NCCL_VERSION_CODE >= 21800
#define LOCKSTEP_WITH_NCCL

namespace lockstep {

struct CudaNccl {
#define NCCL(name) decltype(&::name) name = nullptr;
#include "lane/cuda/functions.def"
};

// Null when libnccl.so.2 is not there.
const CudaNccl* cuda_nccl();

}  // namespace lockstep
#endif
#endif
