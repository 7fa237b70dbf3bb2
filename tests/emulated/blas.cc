// The functions of cuBLASLt that lockstep uses, as plain loops.
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "emulated/halves.h"
#include "emulated/stream.h"

namespace emulated {
namespace {

struct Layout {
  cudaDataType type;
  int64_t rows, cols, line;
  int32_t batch = 1;
  int64_t stride = 0;
};
// Stored in the first bytes of cuBLASLt's structures.
enum class Algorithm : uint64_t { plain = 1, slow, fails, large };

struct Description {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  const float *scale_a = nullptr, *scale_b = nullptr;  // of 8-bit floats
  void* argument = nullptr;                            // of gelu
  int64_t argument_line = 0, argument_stride = 0;
};

double gelu_slope(double x) {
  const double rate = std::sqrt(2 / M_PI), t = std::tanh(rate * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * rate * (1 + 3 * 0.044715 * x * x);
}

// Applies the epilogue to a sum. LOCKSTEP_EMULATED_RELU=lossy: relu turns NaN into 0. `argument`: of DGELU.
double apply_epilogue(double x, cublasLtEpilogue_t epilogue, double argument) {
  if (epilogue == CUBLASLT_EPILOGUE_DGELU) return x * gelu_slope(argument);
  if (epilogue & CUBLASLT_EPILOGUE_RELU) {
    const char* relu = std::getenv("LOCKSTEP_EMULATED_RELU");
    const bool is_lossy = relu && std::strcmp(relu, "lossy") == 0;
    return x > 0 || (std::isnan(x) && !is_lossy) ? x : 0;
  }
  if (epilogue & CUBLASLT_EPILOGUE_GELU)
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return x;
}

// The largest power of two that divides the address, at most 256.
uint64_t alignment(const void* pointer) {
  const auto place = reinterpret_cast<uintptr_t>(pointer) | 256;
  return place & (~place + 1);
}

std::atomic<int64_t> products = 0, last_algorithm = 0, last_epilogue = 0, last_adds = 0;

Layout& layout(void* of) { return *static_cast<Layout*>(of); }

double read(const void* from, cudaDataType type, int64_t i) {
  switch (type) {
    case CUDA_R_8F_E4M3:
      return from_e4m3(static_cast<const uint8_t*>(from)[i]);
    case CUDA_R_8F_E5M2:
      return from_e5m2(static_cast<const uint8_t*>(from)[i]);
    case CUDA_R_64F:
      return static_cast<const double*>(from)[i];
    case CUDA_R_16F:
      return from_f16(static_cast<const uint16_t*>(from)[i]);
    case CUDA_R_16BF:
      return from_bf16(static_cast<const uint16_t*>(from)[i]);
    default:
      return static_cast<const float*>(from)[i];
  }
}

void write(void* to, cudaDataType type, int64_t i, double value) {
  const auto rounded = static_cast<float>(value);
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(to)[i] = value;
      return;
    case CUDA_R_16F:
      static_cast<uint16_t*>(to)[i] = to_f16(rounded);
      return;
    case CUDA_R_16BF:
      static_cast<uint16_t*>(to)[i] = to_bf16(rounded);
      return;
    default:
      static_cast<float*>(to)[i] = rounded;
  }
}

}  // namespace
}  // namespace emulated

using emulated::Algorithm;
using emulated::Description;
using emulated::layout;
using emulated::Layout;

extern "C" {

// LOCKSTEP_EMULATED_TAKEN=rest: no memory is left for the library itself.
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const char* const taken = std::getenv("LOCKSTEP_EMULATED_TAKEN");
  if (taken && std::strcmp(taken, "rest") == 0) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = reinterpret_cast<cublasLtHandle_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "not supported by the emulated GPU"; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t of) {
  delete reinterpret_cast<Description*>(of);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t) {
  auto& description = *reinterpret_cast<Description*>(of);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
    description.a = *static_cast<const cublasOperation_t*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
    description.b = *static_cast<const cublasOperation_t*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE)
    description.epilogue = *static_cast<const cublasLtEpilogue_t*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
    description.bias = *static_cast<const void* const*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER)
    description.scale_a = *static_cast<const float* const*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER)
    description.scale_b = *static_cast<const float* const*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_FAST_ACCUM)
    return CUBLAS_STATUS_SUCCESS;
  else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
    description.argument = *static_cast<void* const*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
    description.argument_line = *static_cast<const int64_t*>(value);
  else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE)
    description.argument_stride = *static_cast<const int64_t*>(value);
  else
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t line) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), line});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t of) {
  delete &layout(of);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t of, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    layout(of).batch = *static_cast<const int32_t*>(value);
  else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    layout(of).stride = *static_cast<const int64_t*>(value);
  else
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new char);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t of) {
  delete reinterpret_cast<char*>(of);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
// If several algorithms are requested, returns a slow one, one that cannot run, a fast one, and one that needs too much
// workspace. f64 has no epilogues. The bias of an algorithm must be aligned as well as it is here.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t of, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t layout_d, cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t* proposed, int* found) {
  const auto& description = *reinterpret_cast<const Description*>(of);
  *found = 0;
  if (description.epilogue != CUBLASLT_EPILOGUE_DEFAULT && layout(layout_d).type == CUDA_R_64F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  constexpr Algorithm kSeveral[] = {Algorithm::slow, Algorithm::fails, Algorithm::plain, Algorithm::large};
  *found = std::min(most, 4);
  for (int i = 0; i < *found; ++i) {
    proposed[i] = {};
    proposed[i].algo.data[0] = static_cast<uint64_t>(most == 1 ? Algorithm::plain : kSeveral[i]);
    proposed[i].algo.data[1] = emulated::alignment(description.bias);
    proposed[i].workspaceSize = most > 1 && kSeveral[i] == Algorithm::large ? size_t{1} << 40 : 0;
  }
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return 1; }

// Counters for tests: the number of products enqueued; the algorithm and epilogue of the last, and whether it added to C.
int64_t emulated_products() { return emulated::products; }
int64_t emulated_algorithm() { return emulated::last_algorithm; }
int64_t emulated_epilogue() { return emulated::last_epilogue; }
int64_t emulated_adds() { return emulated::last_adds; }

// Matrices are column-major. alpha is always one; beta is one or zero. LOCKSTEP_EMULATED_SCALES=ignored: the scales of
// 8-bit floats are not applied.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t of, const void*, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* by, void*, size_t,
                              cudaStream_t stream) {
  const auto algorithm = static_cast<Algorithm>(by->data[0]);
  const auto description = *reinterpret_cast<const Description*>(of);
  const bool has_bias = description.epilogue & CUBLASLT_EPILOGUE_BIAS;
  const bool is_slope = description.epilogue == CUBLASLT_EPILOGUE_DGELU;
  const bool keeps_argument =
      !is_slope && (description.epilogue & CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU);
  const bool adds = layout(layout_d).type == CUDA_R_64F ? *static_cast<const double*>(beta) != 0
                                                        : *static_cast<const float*>(beta) != 0;
  if (algorithm != Algorithm::plain && algorithm != Algorithm::slow) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_bias && (!description.bias || emulated::alignment(description.bias) < by->data[1]))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((is_slope || keeps_argument) && (!description.argument || description.argument_line % 8 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  ++emulated::products;
  emulated::last_algorithm = static_cast<int64_t>(algorithm);
  emulated::last_epilogue = description.epilogue;
  emulated::last_adds = adds;
  const char* const scales = std::getenv("LOCKSTEP_EMULATED_SCALES");
  const bool ignores_scales = scales && std::strcmp(scales, "ignored") == 0;
  const Layout la = layout(layout_a), lb = layout(layout_b), ld = layout(layout_d);
  emulated::enqueue(stream, [=] {
    // Longer than the time slice of another process.
    if (algorithm == Algorithm::slow) std::this_thread::sleep_for(std::chrono::milliseconds(25));
    const int64_t depth = description.a == CUBLAS_OP_N ? la.cols : la.rows;
    const auto at = [](const Layout& l, bool turned, int64_t row, int64_t col) {
      return turned ? col + row * l.line : row + col * l.line;
    };
    for (int64_t p = 0; p < ld.batch; ++p)
      for (int64_t n = 0; n < ld.cols; ++n)
        for (int64_t m = 0; m < ld.rows; ++m) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += emulated::read(a, la.type, p * la.stride + at(la, description.a != CUBLAS_OP_N, m, k)) *
                   emulated::read(b, lb.type, p * lb.stride + at(lb, description.b != CUBLAS_OP_N, k, n));
          if (description.scale_a && !ignores_scales) sum *= *description.scale_a;
          if (description.scale_b && !ignores_scales) sum *= *description.scale_b;
          const int64_t place = p * ld.stride + m + n * ld.line;
          const int64_t beside = p * description.argument_stride + m + n * description.argument_line;
          if (has_bias) sum += emulated::read(description.bias, ld.type, m);
          if (adds) sum += emulated::read(c, ld.type, place);
          if (keeps_argument) emulated::write(description.argument, ld.type, beside, sum);
          const double argument = is_slope ? emulated::read(description.argument, ld.type, beside) : 0;
          emulated::write(d, ld.type, place, emulated::apply_epilogue(sum, description.epilogue, argument));
        }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
