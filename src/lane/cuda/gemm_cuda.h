// CudaGemm: the batched matrix product C = A x B on the GPU by cuBLASLt. The first run of a large product autotunes: it
// times the algorithms that cuBLASLt proposes and caches the fastest, in the process and on disk (*.gemm beside
// compiled kernels). Any thread may run it, one at a time.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "lane/cpu/gemm.h"
#include "lane/cuda/cuda_stream.h"

namespace lockstep {

// The precision of f32 products: full, or TF32 on tensor cores, with 11-bit significands (JAX's default on GPUs).
enum class CudaMath { full, tf32 };

// The epilogue of a product: adds a bias per column, then applies the activation, both in f32 before rounding. gelu
// uses the tanh formula.
struct GemmEpilogue {
  enum Activation : uint8_t { none, relu, gelu };

  bool bias = false;
  Activation activation = none;
};

// When and how long to autotune.
struct GemmAutotuneOptions {
  double min_operations = 1e9;  // smaller products use the first proposed algorithm
  double seconds = 30e-3;       // time limit for all algorithms of a product
};

class CudaGemm {
 public:
  // Whether cuBLASLt supports the dtype: floating-point types only.
  static bool supports(DType dtype);

  // REQUIRES: supports(spec.dtype); extents of at least 1.
  CudaGemm(CudaStream& lane, const GemmSpec& spec, CudaMath math, const GemmAutotuneOptions& autotune = {});
  // Returns nullopt if cuBLASLt has no algorithm, if its activation does not preserve NaN, or if a row stride is not a
  // multiple of eight elements; and for gelu of f32 with full precision, where cuBLASLt is not exact enough.
  static std::optional<CudaGemm> with_epilogue(CudaStream& lane, const GemmSpec& spec, CudaMath math,
                                               const GemmEpilogue& epilogue, const GemmAutotuneOptions& autotune = {});

  // Enqueues the product. The bias, required if the epilogue has one, has n elements of C's dtype, is shared by the
  // batch, and is aligned to kBiasAlignment bytes. While the lane is capturing, nothing is timed: uses the cached
  // algorithm, or else the first that cuBLASLt proposes.
  void run(const void* a, const void* b, void* c, const void* bias = nullptr) const;
  static constexpr int64_t kBiasAlignment = 16;

 private:
  struct State;
  explicit CudaGemm(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static std::shared_ptr<State> prepare(CudaStream&, const GemmSpec&, CudaMath, const GemmEpilogue&,
                                        const GemmAutotuneOptions&);
  static bool preserves_nan(CudaStream&, DType, CudaMath, GemmEpilogue::Activation);

  std::shared_ptr<State> state_;
};

// RuntimeOptions::gpu_math at the first call. Throws Error if its variable is invalid.
CudaMath cuda_math();

// Clears the algorithms cached in the process; those on disk stay. For tests.
void clear_gemm_autotune_cache();

}  // namespace lockstep
