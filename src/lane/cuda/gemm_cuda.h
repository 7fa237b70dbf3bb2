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

// The epilogue of a product, in f32 before rounding: adds a bias per column and a residual, a matrix like C, and then
// applies the activation. gelu uses the tanh formula; gelu_slope multiplies by the derivative of gelu at another matrix
// like C, its argument.
struct GemmEpilogue {
  enum Activation : uint8_t { none, relu, gelu, gelu_slope };

  bool bias = false;
  Activation activation = none;
  bool residual = false;        // only without an activation
  bool keeps_argument = false;  // gelu: its argument is a second result

  bool has_argument() const { return keeps_argument || activation == gelu_slope; }
};

// When and how long to autotune.
struct GemmAutotuneOptions {
  double min_operations = 1e9;  // smaller products use the first proposed algorithm
  double seconds = 30e-3;       // time limit for all algorithms of a product
};

class CudaGemm {
 public:
  // Whether cuBLASLt supports operands of this dtype: floating-point types of 16 bits or more.
  static bool supports(DType dtype);

  // REQUIRES: supports(spec.dtype); extents of at least 1.
  CudaGemm(CudaStream& lane, const GemmSpec& spec, CudaMath math, const GemmAutotuneOptions& autotune = {});
  // Returns nullopt if cuBLASLt has no algorithm, if its activation does not preserve NaN, or if a row stride is not a
  // multiple of eight elements; and for gelu of f32 with full precision, where cuBLASLt is not exact enough.
  static std::optional<CudaGemm> with_epilogue(CudaStream& lane, const GemmSpec& spec, CudaMath math,
                                               const GemmEpilogue& epilogue, const GemmAutotuneOptions& autotune = {});

  // The product of a matrix of 8-bit floats, of spec.dtype, and the transpose of one of `dtype_b`, both dense, times two
  // scales. Returns nullopt where cuBLASLt does not compute it: on GPUs before compute capability 8.9, if an extent is
  // not a multiple of 16, if both types are f8_e5m2, if it has no algorithm, or if a small product, computed once per
  // process, is wrong. Products of f8_e4m3 by itself use fast accumulation; the others are of gradients.
  static std::optional<CudaGemm> float8(CudaStream& lane, const GemmSpec& spec, DType dtype_b,
                                        const GemmAutotuneOptions& autotune = {});

  // What the epilogue reads and writes besides C, of C's dtype. Each is given exactly if the epilogue has it.
  struct Extras {
    const float* scale_a = nullptr;  // of float8(): in device memory
    const float* scale_b = nullptr;
    const void* bias = nullptr;      // n elements, shared by the batch, aligned to kBiasAlignment bytes
    const void* residual = nullptr;  // may be C; then a 16-bit product may be rounded before it is added
    void* argument = nullptr;        // of gelu: written; of gelu_slope: read. Not C
  };

  // Enqueues the product. While the lane is capturing, nothing is timed: uses the cached algorithm, or else the first
  // that cuBLASLt proposes.
  void run(const void* a, const void* b, void* c, const Extras& extras) const;
  void run(const void* a, const void* b, void* c) const { run(a, b, c, Extras()); }
  static constexpr int64_t kBiasAlignment = 16;

 private:
  struct State;
  explicit CudaGemm(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static std::shared_ptr<State> prepare(CudaStream&, const GemmSpec&, CudaMath, const GemmEpilogue&,
                                        const GemmAutotuneOptions&, std::optional<DType> float8_b = {});
  static bool preserves_nan(CudaStream&, DType, CudaMath, const GemmEpilogue&);

  std::shared_ptr<State> state_;
};

// RuntimeOptions::gpu_math at the first call. Throws Error if its variable is invalid.
CudaMath cuda_math();

// Clears the algorithms cached in the process; those on disk stay. For tests.
void clear_gemm_autotune_cache();

}  // namespace lockstep
