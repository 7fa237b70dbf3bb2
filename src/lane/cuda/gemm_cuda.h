// CudaGemm: the batched matrix product C = A x B on the GPU, by cuBLASLt. Where it is large, the algorithms that
// cuBLASLt proposes are measured when it is first run, in turns, and the fastest is remembered in the process and,
// beside compiled kernels, on disk (.gemm). Any thread may run it, one at a time.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "lane/cpu/gemm.h"
#include "lane/cuda/cuda_lane.h"

namespace lockstep {

// How f32 is multiplied: whole, or with significands of 11 bits by the tensor cores (JAX's default on these GPUs).
enum class CudaMath { full, tf32 };

// What is done to each element of a product besides: first a bias for each column is added, then the activation
// computed, in f32, before the element is rounded. gelu is that of the tanh formula.
struct GemmEpilogue {
  enum Activation : uint8_t { none, relu, gelu };

  bool bias = false;
  Activation activation = none;
};

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
  // Nothing where cuBLASLt has no algorithm for it, or one that makes a number of NaN, or rows do not begin at multiples
  // of eight elements; gelu of whole floats (`full`) is not exact enough.
  static std::optional<CudaGemm> with_epilogue(CudaLane& lane, const GemmSpec& spec, CudaMath math,
                                               const GemmEpilogue& epilogue, const GemmMeasuring& measuring = {});

  // The bias, where there is one, is of n elements of C's dtype, the same for the whole batch, and begins at a multiple
  // of kBiasAlignment bytes.
  // Nothing is measured while the lane is recording: then it is the algorithm that cuBLASLt proposes first, unless
  // another was chosen before.
  void run(const void* a, const void* b, void* c, const void* bias = nullptr) const;
  static constexpr int64_t kBiasAlignment = 16;

 private:
  struct State;
  explicit CudaGemm(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static std::shared_ptr<State> prepare(CudaLane&, const GemmSpec&, CudaMath, const GemmEpilogue&,
                                        const GemmMeasuring&);
  static bool keeps_nan(CudaLane&, DType, CudaMath, GemmEpilogue::Activation);

  std::shared_ptr<State> state_;
};

// What the environment chose (LOCKSTEP_CUDA_MATH=full|tf32), tf32 when it says nothing. Throws Error for anything else.
CudaMath cuda_math();

// The process remembers no algorithms any more; those on disk stay. For tests.
void forget_gemm_choices();

}  // namespace lockstep
