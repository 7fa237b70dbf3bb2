#include "lane/cuda/gemm_cuda.h"

#include <cstdlib>
#include <string>

#include "base/check.h"

namespace lockstep {
namespace {

cudaDataType_t cublas_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

}  // namespace

CudaMath cuda_math() {
  static const CudaMath math = [] {
    const char* value = std::getenv("LOCKSTEP_CUDA_MATH");
    const std::string text = value ? value : "";
    if (text == "full") return CudaMath::full;
    if (text.empty() || text == "tf32") return CudaMath::tf32;
    throw_error("cuda: LOCKSTEP_CUDA_MATH is \"{}\"; give full or tf32", text);
  }();
  return math;
}

bool CudaGemm::supports(DType dtype) { return is_floating(dtype); }

struct CudaGemm::State {
  CudaLane& lane;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool wide = false;  // scales are double

  explicit State(CudaLane& on) : lane(on) {}
  ~State() {
    for (cublasLtMatrixLayout_t each : {a, b, c})
      if (each) cuda_blas().cublasLtMatrixLayoutDestroy(each);
    if (product) cuda_blas().cublasLtMatmulDescDestroy(product);
  }
};

CudaGemm::CudaGemm(CudaLane& lane, const GemmSpec& spec, CudaMath math) {
  const CudaBlas& blas = cuda_blas();
  auto state = std::make_shared<State>(lane);
  state->wide = spec.dtype == DType::f64;
  const DType out = spec.out.value_or(spec.dtype);
  const cublasComputeType_t compute = state->wide ? CUBLAS_COMPUTE_64F
                                      : spec.dtype == DType::f32 && math == CudaMath::tf32
                                          ? CUBLAS_COMPUTE_32F_FAST_TF32
                                          : CUBLAS_COMPUTE_32F;
  check_blas(blas.cublasLtMatmulDescCreate(&state->product, compute, state->wide ? CUDA_R_64F : CUDA_R_32F),
             "describe a product");
  // Row-major matrices are the transposes of column-major ones: C' = B' x A'.
  const auto set_operation = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(blas.cublasLtMatmulDescSetAttribute(state->product, attribute, &operation, sizeof operation),
               "describe a product");
  };
  set_operation(CUBLASLT_MATMUL_DESC_TRANSA, spec.transpose_b);
  set_operation(CUBLASLT_MATMUL_DESC_TRANSB, spec.transpose_a);
  const auto layout = [&](cublasLtMatrixLayout_t& made, DType dtype, int64_t rows, int64_t cols, int64_t ld,
                          int64_t stride) {
    check_blas(blas.cublasLtMatrixLayoutCreate(&made, cublas_type(dtype), static_cast<uint64_t>(rows),
                                               static_cast<uint64_t>(cols), std::max(ld, rows)),
               "describe a matrix");
    const auto batch = static_cast<int32_t>(spec.batch);
    check_blas(blas.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
               "describe a matrix");
    check_blas(blas.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                     sizeof stride),
               "describe a matrix");
  };
  // Of a stored row-major matrix the columns are the rows here.
  const int64_t a_cols = spec.transpose_a ? spec.m : spec.k, a_rows = spec.transpose_a ? spec.k : spec.m;
  const int64_t b_cols = spec.transpose_b ? spec.k : spec.n, b_rows = spec.transpose_b ? spec.n : spec.k;
  layout(state->a, spec.dtype, b_cols, b_rows, spec.ldb, spec.stride_b);
  layout(state->b, spec.dtype, a_cols, a_rows, spec.lda, spec.stride_a);
  layout(state->c, out, spec.n, spec.m, spec.ldc, spec.stride_c);

  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(blas.cublasLtMatmulPreferenceCreate(&preference), "choose an algorithm");
  const size_t space = CudaLane::kBlasBytes;
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  cublasStatus_t status = blas.cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = blas.cublasLtMatmulAlgoGetHeuristic(lane.blas(), state->product, state->a, state->b, state->c, state->c,
                                                 preference, 1, &best, &found);
  blas.cublasLtMatmulPreferenceDestroy(preference);
  check_blas(status, "choose an algorithm");
  if (found == 0)
    throw_error("cuda: no algorithm for a product of {} matrices {} x {} x {} of {}", spec.batch, spec.m, spec.k,
                spec.n, name(spec.dtype));
  state->algorithm = best.algo;
  lane.blas_space();  // taken now, not while a step is recorded
  state_ = std::move(state);
}

void CudaGemm::run(const void* a, const void* b, void* c) const {
  const State& s = *state_;
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const void* alpha = s.wide ? static_cast<const void*>(&wide_one) : &one;
  const void* beta = s.wide ? static_cast<const void*>(&wide_zero) : &zero;
  check_blas(cuda_blas().cublasLtMatmul(s.lane.blas(), s.product, alpha, b, s.a, a, s.b, beta, c, s.c, c, s.c,
                                        &s.algorithm, s.lane.blas_space(), CudaLane::kBlasBytes, s.lane.stream()),
             "multiply matrices");
}

}  // namespace lockstep
