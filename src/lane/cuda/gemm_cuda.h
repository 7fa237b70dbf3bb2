// CudaGemm: the batched matrix product C = A x B on the GPU, by cuBLASLt. Where it is large, the algorithms that
// cuBLASLt proposes are measured when it is first run, in turns, and the fastest is remembered in the process and,
// beside compiled kernels, on disk (.gemm). Any thread may run it, one at a time.
#pragma once

#include <memory>

#include "lane/cpu/gemm.h"
#include "lane/cuda/cuda_lane.h"

namespace lockstep {

// How f32 is multiplied: whole, or with significands of 11 bits by the tensor cores (JAX's default on these GPUs).
enum class CudaMath { full, tf32 };

// How algorithms are measured.
struct GemmMeasuring {
  double least_operations = 1e9;  // of products that are worth it
  double seconds = 30e-3;         // for all of a product's
};

class CudaGemm {
 public:
  // Can cuBLASLt do it? Integers it cannot.
  static bool supports(DType dtype);

  // REQUIRES: supports(spec.dtype); extents of at least 1.
  CudaGemm(CudaLane& lane, const GemmSpec& spec, CudaMath math, const GemmMeasuring& measuring = {});

  // Nothing is measured while the lane is recording: then it is the algorithm that cuBLASLt proposes first, unless
  // another was chosen before.
  void run(const void* a, const void* b, void* c) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// What the environment chose (LOCKSTEP_CUDA_MATH=full|tf32), tf32 when it says nothing. Throws Error for anything else.
CudaMath cuda_math();

// The process remembers no algorithms any more; those on disk stay. For tests.
void forget_gemm_choices();

}  // namespace lockstep
