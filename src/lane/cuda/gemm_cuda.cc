#include "lane/cuda/gemm_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/runtime_parts.h"
#include "base/runtime_settings.h"
#include "lane/cuda/autotune.h"

namespace lockstep {
namespace {

cudaDataType_t cublas_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f8_e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8_e5m2:
      return CUDA_R_8F_E5M2;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasLtEpilogue_t cublas_epilogue(const GemmEpilogue& epilogue) {
  switch (epilogue.activation) {
    case GemmEpilogue::relu:
      return epilogue.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case GemmEpilogue::gelu:
      if (epilogue.keeps_argument) return epilogue.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return epilogue.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case GemmEpilogue::gelu_slope:
      return CUBLASLT_EPILOGUE_DGELU;
    case GemmEpilogue::none:
      break;
  }
  return epilogue.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

bool is_nan(const uint8_t* element, DType dtype) {
  const auto read = [&](auto out) {
    std::memcpy(&out, element, sizeof out);
    return out;
  };
  if (dtype == DType::f64) return std::isnan(read(double{}));
  if (dtype == DType::f32) return std::isnan(read(float{}));
  return (read(uint16_t{}) & 0x7fff) > (dtype == DType::bf16 ? 0x7f80 : 0x7c00);
}

// The bytes of an algorithm in hexadecimal, for the cache. Valid for the same version of the library.
std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  std::string out;
  for (const uint64_t word : algorithm.data) out += fmt::format("{:016x}", word);
  return out;
}

AutotuneCache& gemm_cache() {
  static auto* const out = new AutotuneCache("gemm");
  return *out;
}

}  // namespace

void clear_gemm_autotune_cache() { gemm_cache().clear(); }

namespace {

struct GpuMath {
  const CudaMath value = detail::runtime_option(&RuntimeOptions::gpu_math) == "full" ? CudaMath::full : CudaMath::tf32;
};

}  // namespace

CudaMath cuda_math() { return detail::runtime_part<GpuMath>().value; }

bool CudaGemm::supports(DType dtype) { return is_floating(dtype) && !is_float8(dtype); }

// The operands and the result of one run.
struct GemmPointers {
  const void* a;
  const void* b;
  void* c;
  const void* residual;  // or null
};

struct CudaGemm::State {
  CudaStream& lane;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  std::vector<cublasLtMatmulAlgo_t> proposed;  // to choose from; empty once an algorithm is chosen
  std::string key;                             // of the cache
  GemmAutotuneOptions autotune;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  bool wide = false;              // alpha and beta are double
  std::optional<DType> float8_b;  // of products of 8-bit floats: the type of B
  GemmEpilogue epilogue;
  int64_t result_bytes = 0;  // of C with the gaps between its rows

  explicit State(CudaStream& on) : lane(on) {}
  ~State() {
    for (cublasLtMatrixLayout_t each : {a, b, c})
      if (each) cuda_blas().cublasLtMatrixLayoutDestroy(each);
    if (product) cuda_blas().cublasLtMatmulDescDestroy(product);
  }

  void describe_product(const GemmSpec& spec);
  void describe_matrices(const GemmSpec& spec, DType out);
  std::string cache_key(const GemmSpec& spec, DType out) const;
  void propose(int max_count, DType out);
  bool use_cached();
  const cublasLtMatmulAlgo_t* fastest(const GemmPointers& pointers) const;
  void set_attribute(cublasLtMatmulDescAttributes_t attribute, auto value) const {
    check_blas(cuda_blas().cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value),
               "describe a product");
  }
  void set_extras(const Extras& extras) const;
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t& by, const GemmPointers& pointers) const;
};

CudaGemm::CudaGemm(CudaStream& lane, const GemmSpec& spec, CudaMath math, const GemmAutotuneOptions& autotune)
    : state_(prepare(lane, spec, math, {}, autotune)) {
  if (!state_)
    throw_error("cuda: no algorithm for a product of {} matrices {} x {} x {} of {}", spec.batch, spec.m, spec.k,
                spec.n, name(spec.dtype));
}

std::optional<CudaGemm> CudaGemm::with_epilogue(CudaStream& lane, const GemmSpec& spec, CudaMath math,
                                                const GemmEpilogue& epilogue, const GemmAutotuneOptions& autotune) {
  // For rows that are not aligned to 16 bytes cuBLASLt uses other kernels: some round 16-bit floats before adding the
  // bias, and one turned NaN into 0.
  const auto is_aligned = [](int64_t n) { return n == GemmSpec::kDense || n % 8 == 0; };
  for (const int64_t each : {spec.n, spec.k, spec.transpose_a ? spec.m : 0, spec.lda, spec.ldb, spec.ldc})
    if (!is_aligned(each)) return {};
  // The gelu of cuBLASLt is not exact to the last bits of f32.
  const bool exact = spec.dtype == DType::f32 && math == CudaMath::full;
  if (exact && (epilogue.activation == GemmEpilogue::gelu || epilogue.activation == GemmEpilogue::gelu_slope))
    return {};
  if (!preserves_nan(lane, spec.dtype, math, epilogue)) return {};
  std::shared_ptr<State> state = prepare(lane, spec, math, epilogue, autotune);
  return state ? std::optional(CudaGemm(std::move(state))) : std::nullopt;
}

// Creates the descriptor of the product. Row-major matrices are the transposes of column-major ones: C' = B' x A'.
void CudaGemm::State::describe_product(const GemmSpec& spec) {
  check_blas(cuda_blas().cublasLtMatmulDescCreate(&product, compute, wide ? CUDA_R_64F : CUDA_R_32F),
             "describe a product");
  set_attribute(CUBLASLT_MATMUL_DESC_TRANSA, spec.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set_attribute(CUBLASLT_MATMUL_DESC_TRANSB, spec.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  // cuBLASLt adds a bias per row of C', which is a column of C.
  set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE, cublas_epilogue(epilogue));
  if (float8_b) {
    const bool fast = spec.dtype == DType::f8_e4m3 && float8_b == DType::f8_e4m3;
    set_attribute(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(fast));
  }
  if (!epilogue.has_argument()) return;
  set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::max(spec.ldc, spec.n));
  if (spec.batch > 1) set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, spec.stride_c);
}

// Creates the layouts of the matrices. The columns of a stored row-major matrix are cuBLASLt's rows.
void CudaGemm::State::describe_matrices(const GemmSpec& spec, DType out) {
  const CudaBlas& blas = cuda_blas();
  const auto layout = [&](cublasLtMatrixLayout_t& made, DType dtype, int64_t rows, int64_t cols, int64_t ld,
                          int64_t stride) {
    check_blas(blas.cublasLtMatrixLayoutCreate(&made, cublas_type(dtype), static_cast<uint64_t>(rows),
                                               static_cast<uint64_t>(cols), std::max(ld, rows)),
               "describe a matrix");
    if (spec.batch > INT32_MAX)
      throw_error("matrix product: a batch of {} exceeds 2^31 - 1; split the operands", spec.batch);
    const auto batch = static_cast<int32_t>(spec.batch);
    check_blas(blas.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
               "describe a matrix");
    check_blas(blas.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                     sizeof stride),
               "describe a matrix");
  };
  const int64_t a_cols = spec.transpose_a ? spec.m : spec.k, a_rows = spec.transpose_a ? spec.k : spec.m;
  const int64_t b_cols = spec.transpose_b ? spec.k : spec.n, b_rows = spec.transpose_b ? spec.n : spec.k;
  layout(a, float8_b.value_or(spec.dtype), b_cols, b_rows, spec.ldb, spec.stride_b);
  layout(b, spec.dtype, a_cols, a_rows, spec.lda, spec.stride_a);
  layout(c, out, spec.n, spec.m, spec.ldc, spec.stride_c);
}

// The key of a product in the autotune cache.
std::string CudaGemm::State::cache_key(const GemmSpec& spec, DType out) const {
  const auto all = [](auto... numbers) {
    std::string text;
    ((text += fmt::format(" {}", numbers)), ...);
    return text;
  };
  return fmt::format("{} cublasLt {} {} {}{}\n{} {}{}", lane.info().name, cuda_blas().cublasLtGetVersion(),
                     static_cast<int>(compute), static_cast<int>(cublas_epilogue(epilogue)),
                     epilogue.residual ? " residual" : "",
                     float8_b ? fmt::format("{} {}", name(spec.dtype), name(*float8_b)) : name(spec.dtype), name(out),
                     all(spec.m, spec.n, spec.k, spec.transpose_a, spec.transpose_b, spec.lda, spec.ldb, spec.ldc,
                         spec.batch, spec.stride_a, spec.stride_b, spec.stride_c));
}

// Returns null if cuBLASLt has no algorithm.
std::shared_ptr<CudaGemm::State> CudaGemm::prepare(CudaStream& lane, const GemmSpec& spec, CudaMath math,
                                                   const GemmEpilogue& epilogue, const GemmAutotuneOptions& autotune,
                                                   std::optional<DType> float8_b) {
  auto state = std::make_shared<State>(lane);
  state->float8_b = float8_b;
  state->autotune = autotune;
  state->wide = spec.dtype == DType::f64;
  state->compute = state->wide                                          ? CUBLAS_COMPUTE_64F
                   : spec.dtype == DType::f32 && math == CudaMath::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                        : CUBLAS_COMPUTE_32F;
  state->epilogue = epilogue;
  state->describe_product(spec);
  // Allocated now, not during a graph capture. The proposals depend on the bias's alignment: use a pointer with no more
  // than the required alignment.
  auto* const space = static_cast<std::byte*>(lane.blas_workspace());
  auto* const scale = reinterpret_cast<const float*>(space);
  state->set_extras({.scale_a = scale, .scale_b = scale, .bias = space + kBiasAlignment, .argument = space});
  const DType out = spec.out.value_or(spec.dtype);
  state->describe_matrices(spec, out);
  state->result_bytes =
      ((spec.batch - 1) * spec.stride_c + (spec.m - 1) * std::max(spec.ldc, spec.n) + spec.n) * size_of(out);

  const double operations =
      2.0 * static_cast<double>(spec.batch * spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k);
  constexpr int kMaxProposals = 8;
  state->propose(operations >= autotune.min_operations ? kMaxProposals : 1, out);
  if (state->proposed.empty()) return nullptr;
  state->algorithm = state->proposed[0];
  if (state->proposed.size() > 1) {
    state->key = state->cache_key(spec, out);
    state->use_cached();
  } else {
    state->proposed.clear();
  }
  return state;
}

void CudaGemm::State::set_extras(const Extras& extras) const {
  if (float8_b) {  // C' = B' x A'
    set_attribute(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, extras.scale_b);
    set_attribute(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, extras.scale_a);
  }
  if (epilogue.bias) set_attribute(CUBLASLT_MATMUL_DESC_BIAS_POINTER, extras.bias);
  if (epilogue.has_argument()) set_attribute(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, extras.argument);
}

// Fills `proposed` with algorithms that fit the workspace, in the order of cuBLASLt's heuristic.
void CudaGemm::State::propose(int max_count, DType out) {
  const CudaBlas& blas = cuda_blas();
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(blas.cublasLtMatmulPreferenceCreate(&preference), "choose an algorithm");
  const size_t space = CudaStream::kBlasBytes;
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(max_count));
  int count = 0;
  cublasStatus_t status = blas.cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space);
  // Split-K reductions add partial sums in f32 and round once.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (status == CUBLAS_STATUS_SUCCESS && size_of(out) == 2)
    status = blas.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                       &reductions, sizeof reductions);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = blas.cublasLtMatmulAlgoGetHeuristic(lane.blas(), product, a, b, c, c, preference, max_count, found.data(),
                                                 &count);
  blas.cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
  check_blas(status, "choose an algorithm");
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& each = found[static_cast<size_t>(i)];
    if (each.state == CUBLAS_STATUS_SUCCESS && each.workspaceSize <= space) proposed.push_back(each.algo);
  }
}

cublasStatus_t CudaGemm::State::multiply(const cublasLtMatmulAlgo_t& by, const GemmPointers& pointers) const {
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const void* alpha = wide ? static_cast<const void*>(&wide_one) : &one;
  const void* no_sum = wide ? static_cast<const void*>(&wide_zero) : &zero;
  const void* beta = pointers.residual ? alpha : no_sum;
  const auto enqueue_lock = lane.enqueue_lock();
  return cuda_blas().cublasLtMatmul(lane.blas(), product, alpha, pointers.b, a, pointers.a, b, beta,
                                    pointers.residual ? pointers.residual : pointers.c, c, pointers.c, c, &by,
                                    lane.blas_workspace(), CudaStream::kBlasBytes, lane.stream());
}

// Uses the cached choice if it is among the proposed algorithms.
bool CudaGemm::State::use_cached() {
  const auto of = [&](const std::string& text) {
    return std::find_if(proposed.begin(), proposed.end(), [&](const auto& each) { return to_text(each) == text; });
  };
  const std::string text = gemm_cache().find(key, [&](const std::string& each) { return of(each) != proposed.end(); });
  if (text.empty()) return false;
  algorithm = *of(text);
  proposed.clear();
  return true;
}

// Returns the fastest proposed algorithm. Times them alternately, because the load on a shared GPU changes. Prefers the
// first one unless another takes less time in every round. Returns null if none could be timed, for example because
// memory is short.
const cublasLtMatmulAlgo_t* CudaGemm::State::fastest(const GemmPointers& operands) const {
  GemmPointers pointers = operands;
  BufferPtr result;  // repeated runs would add to a residual that is overwritten
  if (pointers.residual == pointers.c) {
    result = lane.allocate(result_bytes);
    pointers.c = result->data();
  }
  constexpr int kRounds = 4, kMaxRepeats = 10;
  constexpr double kSampleSeconds = 200e-6;  // aimed at for one measurement
  constexpr double kMuchSlower = 1.5;        // times slower than the first: dropped
  struct Candidate {
    const cublasLtMatmulAlgo_t* algorithm;
    std::unique_ptr<TimedGraph> timed;
    double now = 0, least = 0;
    int wins = 0;
  };
  std::vector<Candidate> candidates;
  double once = 0;
  int times = 1;
  for (const cublasLtMatmulAlgo_t& each : proposed) {
    const auto work = [&] { check_blas(multiply(each, pointers), "measure a product"); };
    try {
      if (candidates.empty()) {
        work();  // includes loading on first use
        once = measure_seconds(lane, work);
        times = std::clamp(static_cast<int>(kSampleSeconds / once), 1, kMaxRepeats);
      }
      candidates.push_back({&each, std::make_unique<TimedGraph>(lane, work, times)});
    } catch (const Error&) {  // it cannot run or be captured
    } catch (const OutOfMemory&) {
    }
    const auto count = static_cast<double>(candidates.size() + 1);
    if (count * once * (1 + kRounds * times) > autotune.seconds) break;
  }
  for (int round = 0; round < kRounds && candidates.size() > 1; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      Candidate& each = candidates[round % 2 == 0 ? i : candidates.size() - 1 - i];
      each.now = each.timed->seconds();
    }
    const double first = candidates[0].now;
    for (Candidate& each : candidates) {
      each.least = round == 0 ? each.now : std::min(each.least, each.now);
      each.wins += each.now < first;
    }
    std::erase_if(candidates, [&](const Candidate& each) { return each.now > kMuchSlower * first; });
  }
  if (candidates.empty()) return nullptr;
  const Candidate* best = &candidates[0];
  for (const Candidate& each : candidates)
    if (each.wins == kRounds && each.least < best->least) best = &each;
  return best->algorithm;
}

void CudaGemm::run(const void* a, const void* b, void* c, const Extras& extras) const {
  State& s = *state_;
  LOCKSTEP_CHECK(s.epilogue.bias == (extras.bias != nullptr));
  LOCKSTEP_CHECK(s.epilogue.residual == (extras.residual != nullptr));
  LOCKSTEP_CHECK(s.epilogue.has_argument() == (extras.argument != nullptr));
  LOCKSTEP_CHECK(!extras.argument || extras.argument != c);
  LOCKSTEP_CHECK(s.float8_b.has_value() == (extras.scale_a != nullptr && extras.scale_b != nullptr));
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(extras.bias) % kBiasAlignment == 0);
  s.set_extras(extras);
  const GemmPointers pointers{a, b, c, extras.residual};
  if (!s.proposed.empty() && !s.lane.capturing() && !s.use_cached()) {
    if (const cublasLtMatmulAlgo_t* const found = s.fastest(pointers)) {
      const cublasLtMatmulAlgo_t best = *found;
      // Another lane or process may have chosen meanwhile: use its choice if it is proposed here.
      if (!s.use_cached()) gemm_cache().store(s.key, to_text(best));
      if (!s.proposed.empty() && !s.use_cached()) {
        s.algorithm = best;
        s.proposed.clear();
      }
    }
  }
  check_blas(s.multiply(s.algorithm, pointers), "multiply matrices");
}

// Tested by small products of zeros with a bias, or an argument of gelu_slope, of NaN, once per machine: cuBLASLt does
// not document it.
bool CudaGemm::preserves_nan(CudaStream& lane, DType dtype, CudaMath math, const GemmEpilogue& wanted) {
  if (wanted.activation == GemmEpilogue::none) return true;
  const GemmEpilogue epilogue{.bias = wanted.activation != GemmEpilogue::gelu_slope,
                              .activation = wanted.activation,
                              .keeps_argument = wanted.keeps_argument};
  const std::string key = fmt::format("{} cublasLt {} {}{} of NaN\n{} {}", lane.info().name,
                                      cuda_blas().cublasLtGetVersion(), static_cast<int>(epilogue.activation),
                                      epilogue.keeps_argument ? " kept" : "", name(dtype), math == CudaMath::tf32);
  const std::string known =
      gemm_cache().find(key, [](const std::string& text) { return text == "kept" || text == "lost"; });
  if (!known.empty()) return known == "kept";
  if (lane.capturing()) return false;
  constexpr int64_t kSize = 64;
  const GemmSpec spec{.dtype = dtype,
                      .m = kSize,
                      .n = kSize,
                      .k = kSize,
                      .lda = kSize,
                      .ldb = kSize,
                      .ldc = kSize,
                      .stride_a = 0,
                      .stride_b = 0,
                      .stride_c = 0};
  const auto state = prepare(lane, spec, math, epilogue, {.min_operations = 0});
  if (!state) return false;
  const CudaStream::UncountedWaits uncounted;
  const int64_t each = size_of(dtype), bytes = kSize * kSize * each;
  const BufferPtr zeros = lane.allocate(bytes), bias = lane.allocate(kSize * each), argument = lane.allocate(bytes),
                  result = lane.allocate(bytes);
  lane.clear(zeros->data(), zeros->size());
  std::vector<uint8_t> elements(static_cast<size_t>(bytes), 0xff);  // NaN, of any size
  lane.to_device(bias->data(), elements.data(), bias->size());
  lane.to_device(argument->data(), elements.data(), argument->size());
  state->set_extras({.bias = bias->data(), .argument = argument->data()});
  const auto algorithms = state->proposed.empty() ? std::vector{state->algorithm} : state->proposed;
  bool kept = true, any = false;
  for (const cublasLtMatmulAlgo_t& by : algorithms) {
    lane.clear(result->data(), result->size());
    if (state->multiply(by, {zeros->data(), zeros->data(), result->data(), nullptr}) != CUBLAS_STATUS_SUCCESS) continue;
    any = true;
    lane.to_host(elements.data(), result->data(), result->size());
    for (size_t i = 0; i < elements.size(); i += static_cast<size_t>(each)) kept &= is_nan(&elements[i], dtype);
  }
  return any && gemm_cache().store(key, kept ? "kept" : "lost") == "kept";
}

}  // namespace lockstep
