// CudaGemm: the batched matrix product C = A x B on the GPU, by cuBLASLt. The algorithm is chosen when it is prepared.
// Any thread may run it, one at a time.
#pragma once

#include <memory>

#include "lane/cpu/gemm.h"
#include "lane/cuda/cuda_lane.h"

namespace lockstep {

// How f32 is multiplied: whole, or with significands of 11 bits by the tensor cores (JAX's default on these GPUs).
enum class CudaMath { full, tf32 };

class CudaGemm {
 public:
  // Can cuBLASLt do it? Integers it cannot.
  static bool supports(DType dtype);

  // REQUIRES: supports(spec.dtype); extents of at least 1.
  CudaGemm(CudaLane& lane, const GemmSpec& spec, CudaMath math);

  void run(const void* a, const void* b, void* c) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// What the environment chose (LOCKSTEP_CUDA_MATH=full|tf32), tf32 when it says nothing. Throws Error for anything else.
CudaMath cuda_math();

}  // namespace lockstep
