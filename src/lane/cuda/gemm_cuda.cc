#include "lane/cuda/gemm_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "lane/cuda/measured.h"

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

cublasLtEpilogue_t cublas_epilogue(const GemmEpilogue& epilogue) {
  switch (epilogue.activation) {
    case GemmEpilogue::relu:
      return epilogue.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case GemmEpilogue::gelu:
      return epilogue.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
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

// An algorithm as it is remembered: its bytes, which a library of the same version understands.
std::string to_text(const cublasLtMatmulAlgo_t& algorithm) {
  std::string out;
  for (const uint64_t word : algorithm.data) out += fmt::format("{:016x}", word);
  return out;
}

Choices& choices() {
  static auto* const out = new Choices("gemm");
  return *out;
}

}  // namespace

void forget_gemm_choices() { choices().forget(); }

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

// Operands and the result of one run.
struct GemmPlaces {
  const void* a;
  const void* b;
  void* c;
};

struct CudaGemm::State {
  CudaLane& lane;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  std::vector<cublasLtMatmulAlgo_t> proposed;  // while none is chosen; else empty
  std::string what;                            // it is chosen for
  GemmMeasuring measuring;
  bool wide = false;  // scales are double
  bool bias = false;

  explicit State(CudaLane& on) : lane(on) {}
  ~State() {
    for (cublasLtMatrixLayout_t each : {a, b, c})
      if (each) cuda_blas().cublasLtMatrixLayoutDestroy(each);
    if (product) cuda_blas().cublasLtMatmulDescDestroy(product);
  }

  void propose(int most, DType out);
  bool take_remembered();
  const cublasLtMatmulAlgo_t* fastest(const GemmPlaces& places) const;
  void set_bias(const void* bias) const;
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t& by, const GemmPlaces& places) const;
};

CudaGemm::CudaGemm(CudaLane& lane, const GemmSpec& spec, CudaMath math, const GemmMeasuring& measuring)
    : state_(prepare(lane, spec, math, {}, measuring)) {
  if (!state_)
    throw_error("cuda: no algorithm for a product of {} matrices {} x {} x {} of {}", spec.batch, spec.m, spec.k,
                spec.n, name(spec.dtype));
}

std::optional<CudaGemm> CudaGemm::with_epilogue(CudaLane& lane, const GemmSpec& spec, CudaMath math,
                                                const GemmEpilogue& epilogue, const GemmMeasuring& measuring) {
  // Of rows that do not begin at multiples of sixteen bytes its kernels are others: some round 16-bit floats before the
  // bias is added, and one made 0 of NaN.
  const auto is_whole = [](int64_t n) { return n == GemmSpec::kDense || n % 8 == 0; };
  for (const int64_t each : {spec.n, spec.k, spec.transpose_a ? spec.m : 0, spec.lda, spec.ldb, spec.ldc})
    if (!is_whole(each)) return {};
  // Its gelu is not to the last bits of a float.
  const bool exact = spec.dtype == DType::f32 && math == CudaMath::full;
  if (exact && epilogue.activation == GemmEpilogue::gelu) return {};
  if (!keeps_nan(lane, spec.dtype, math, epilogue.activation)) return {};
  std::shared_ptr<State> state = prepare(lane, spec, math, epilogue, measuring);
  return state ? std::optional(CudaGemm(std::move(state))) : std::nullopt;
}

// Null where there is no algorithm.
std::shared_ptr<CudaGemm::State> CudaGemm::prepare(CudaLane& lane, const GemmSpec& spec, CudaMath math,
                                                   const GemmEpilogue& epilogue, const GemmMeasuring& measuring) {
  const CudaBlas& blas = cuda_blas();
  auto state = std::make_shared<State>(lane);
  state->measuring = measuring;
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
  // A bias runs along their rows, so along our columns.
  const cublasLtEpilogue_t then = cublas_epilogue(epilogue);
  check_blas(blas.cublasLtMatmulDescSetAttribute(state->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &then, sizeof then),
             "describe a product");
  lane.blas_space();  // taken now, not while a step is recorded
  state->bias = epilogue.bias;
  // For where it lies algorithms are proposed: nowhere better than it has to.
  state->set_bias(static_cast<const std::byte*>(lane.blas_space()) + kBiasAlignment);
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

  const double operations =
      2.0 * static_cast<double>(spec.batch * spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k);
  constexpr int kMost = 8;
  state->propose(operations >= measuring.least_operations ? kMost : 1, out);
  if (state->proposed.empty()) return nullptr;
  state->algorithm = state->proposed[0];
  if (state->proposed.size() > 1) {
    const auto all = [](auto... numbers) {
      std::string text;
      ((text += fmt::format(" {}", numbers)), ...);
      return text;
    };
    state->what = fmt::format("{} cublasLt {} {} {}\n{} {}{}", lane.info().name, blas.cublasLtGetVersion(),
                              static_cast<int>(compute), static_cast<int>(then), name(spec.dtype), name(out),
                              all(spec.m, spec.n, spec.k, spec.transpose_a, spec.transpose_b, spec.lda, spec.ldb,
                                  spec.ldc, spec.batch, spec.stride_a, spec.stride_b, spec.stride_c));
    state->take_remembered();
  } else {
    state->proposed.clear();
  }
  return state;
}

void CudaGemm::State::set_bias(const void* at) const {
  if (bias)
    check_blas(cuda_blas().cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at, sizeof at),
               "describe a product");
}

// Those that fit the space there is, best first as cuBLASLt believes.
void CudaGemm::State::propose(int most, DType out) {
  const CudaBlas& blas = cuda_blas();
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(blas.cublasLtMatmulPreferenceCreate(&preference), "choose an algorithm");
  const size_t space = CudaLane::kBlasBytes;
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  cublasStatus_t status = blas.cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space);
  // Parts of a sum are added up as floats, and rounded once.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (status == CUBLAS_STATUS_SUCCESS && size_of(out) == 2)
    status = blas.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                       &reductions, sizeof reductions);
  if (status == CUBLAS_STATUS_SUCCESS)
    status =
        blas.cublasLtMatmulAlgoGetHeuristic(lane.blas(), product, a, b, c, c, preference, most, found.data(), &count);
  blas.cublasLtMatmulPreferenceDestroy(preference);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
  check_blas(status, "choose an algorithm");
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& each = found[static_cast<size_t>(i)];
    if (each.state == CUBLAS_STATUS_SUCCESS && each.workspaceSize <= space) proposed.push_back(each.algo);
  }
}

cublasStatus_t CudaGemm::State::multiply(const cublasLtMatmulAlgo_t& by, const GemmPlaces& places) const {
  const float one = 1, zero = 0;
  const double wide_one = 1, wide_zero = 0;
  const void* alpha = wide ? static_cast<const void*>(&wide_one) : &one;
  const void* beta = wide ? static_cast<const void*>(&wide_zero) : &zero;
  const auto queueing = lane.queueing();
  return cuda_blas().cublasLtMatmul(lane.blas(), product, alpha, places.b, a, places.a, b, beta, places.c, c, places.c,
                                    c, &by, lane.blas_space(), CudaLane::kBlasBytes, lane.stream());
}

// Where one of those proposed was chosen before, it is taken.
bool CudaGemm::State::take_remembered() {
  const auto of = [&](const std::string& text) {
    return std::find_if(proposed.begin(), proposed.end(), [&](const auto& each) { return to_text(each) == text; });
  };
  const std::string text = choices().find(what, [&](const std::string& each) { return of(each) != proposed.end(); });
  if (text.empty()) return false;
  algorithm = *of(text);
  proposed.clear();
  return true;
}

// The fastest of those that can run, in turns: others may use the GPU meanwhile, now more and now less. The first
// stays, unless another takes less time in every round. Null where none could be measured, for want of memory, say.
const cublasLtMatmulAlgo_t* CudaGemm::State::fastest(const GemmPlaces& places) const {
  constexpr int kRounds = 4, kMostTimes = 10;
  constexpr double kReading = 200e-6, kMuchSlower = 1.5;  // seconds; of the first one's time
  struct Candidate {
    const cublasLtMatmulAlgo_t* algorithm;
    std::unique_ptr<Timed> timed;
    double now = 0, least = 0;
    int wins = 0;
  };
  std::vector<Candidate> candidates;
  double once = 0;
  int times = 1;
  for (const cublasLtMatmulAlgo_t& each : proposed) {
    const auto work = [&] { check_blas(multiply(each, places), "measure a product"); };
    try {
      if (candidates.empty()) {
        work();  // also what is loaded on first use
        once = seconds_of(lane, work);
        times = std::clamp(static_cast<int>(kReading / once), 1, kMostTimes);
      }
      candidates.push_back({&each, std::make_unique<Timed>(lane, work, times)});
    } catch (const Error&) {  // one that cannot run, or be recorded
    } catch (const OutOfMemory&) {
    }
    const auto so_many = static_cast<double>(candidates.size() + 1);
    if (so_many * once * (1 + kRounds * times) > measuring.seconds) break;
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

void CudaGemm::run(const void* a, const void* b, void* c, const void* bias) const {
  State& s = *state_;
  LOCKSTEP_CHECK(s.bias == (bias != nullptr));
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(bias) % kBiasAlignment == 0);
  s.set_bias(bias);
  const GemmPlaces places{a, b, c};
  if (!s.proposed.empty() && !s.lane.recording() && !s.take_remembered()) {
    if (const cublasLtMatmulAlgo_t* const found = s.fastest(places)) {
      const cublasLtMatmulAlgo_t best = *found;
      // What another lane, or another process, chose meanwhile is taken, unless it is not proposed here.
      if (!s.take_remembered()) choices().keep(s.what, to_text(best));
      if (!s.proposed.empty() && !s.take_remembered()) {
        s.algorithm = best;
        s.proposed.clear();
      }
    }
  }
  check_blas(s.multiply(s.algorithm, places), "multiply matrices");
}

// Found out by small products, once on a machine: cuBLASLt does not say.
bool CudaGemm::keeps_nan(CudaLane& lane, DType dtype, CudaMath math, GemmEpilogue::Activation activation) {
  if (activation == GemmEpilogue::none) return true;
  const std::string what =
      fmt::format("{} cublasLt {} {} of NaN\n{} {}", lane.info().name, cuda_blas().cublasLtGetVersion(),
                  static_cast<int>(activation), name(dtype), math == CudaMath::tf32);
  const std::string known =
      choices().find(what, [](const std::string& text) { return text == "kept" || text == "lost"; });
  if (!known.empty()) return known == "kept";
  if (lane.recording()) return false;
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
  const auto state = prepare(lane, spec, math, {.bias = true, .activation = activation}, {.least_operations = 0});
  if (!state) return false;
  const CudaLane::WaitsOnce once;
  const int64_t each = size_of(dtype);
  const BufferPtr zeros = lane.allocate(kSize * kSize * each), bias = lane.allocate(kSize * each),
                  result = lane.allocate(kSize * kSize * each);
  lane.clear(zeros->data(), zeros->size());
  std::vector<uint8_t> bytes(static_cast<size_t>(result->size()), 0xff);  // NaN, of any size
  lane.to_device(bias->data(), bytes.data(), bias->size());
  state->set_bias(bias->data());
  const auto algorithms = state->proposed.empty() ? std::vector{state->algorithm} : state->proposed;
  bool kept = true, any = false;
  for (const cublasLtMatmulAlgo_t& by : algorithms) {
    lane.clear(result->data(), result->size());
    if (state->multiply(by, {zeros->data(), zeros->data(), result->data()}) != CUBLAS_STATUS_SUCCESS) continue;
    any = true;
    lane.to_host(bytes.data(), result->data(), result->size());
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(each)) kept &= is_nan(&bytes[i], dtype);
  }
  return any && choices().keep(what, kept ? "kept" : "lost") == "kept";
}

}  // namespace lockstep
