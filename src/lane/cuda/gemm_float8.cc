// Products of 8-bit floats by cuBLASLt, and the check that they are what lockstep means by them.
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "lane/cuda/gemm_cuda.h"

namespace lockstep {
namespace {

constexpr int kLeastCapability = 89;     // Ada; Hopper is 90
constexpr int64_t kFloat8Multiple = 16;  // of all extents
constexpr float kTestScaleA = 0.5f, kTestScaleB = 4;

int64_t capability(const CudaStream& lane) { return lane.info().major * 10 + lane.info().minor; }

float value_of(DType dtype, uint8_t code) {
  Float8E4M3 x;
  Float8E5M2 y;
  x.bits = y.bits = code;
  return dtype == DType::f8_e4m3 ? static_cast<float>(x) : static_cast<float>(y);
}

// Codes of numbers of moderate size, in no order that a wrong layout would keep.
std::vector<uint8_t> test_codes(DType dtype, int64_t n, uint32_t state) {
  std::vector<uint8_t> out;
  while (out.size() < static_cast<size_t>(n)) {
    state = state * 1664525u + 1013904223u;
    const auto code = static_cast<uint8_t>(state >> 24);
    if (const float size = std::abs(value_of(dtype, code)); size > 0.01f && size < 4) out.push_back(code);
  }
  return out;
}

// Whether results [m, n] are the scaled product of matrices [m, k] and [n, k]: within the rounding of bf16 sums.
bool is_product(const GemmSpec& s, DType dtype_b, const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
                const std::vector<float>& c) {
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0, sizes = 0;
      for (int64_t p = 0; p < s.k; ++p) {
        const double term = static_cast<double>(value_of(s.dtype, a[static_cast<size_t>(i * s.k + p)])) *
                            static_cast<double>(value_of(dtype_b, b[static_cast<size_t>(j * s.k + p)]));
        sum += term;
        sizes += std::abs(term);
      }
      const double scale = static_cast<double>(kTestScaleA) * static_cast<double>(kTestScaleB);
      if (!(std::abs(static_cast<double>(c[static_cast<size_t>(i * s.n + j)]) - sum * scale) <= sizes * scale * 0x1p-8))
        return false;
    }
  return true;
}

}  // namespace

// Computes a small product of numbers that it compares with sums on the host.
static bool multiplies_float8(CudaStream& lane, const CudaGemm& gemm, const GemmSpec& s, DType dtype_b) {
  const CudaStream::UncountedWaits uncounted;
  const std::vector<uint8_t> a = test_codes(s.dtype, s.m * s.k, 1), b = test_codes(dtype_b, s.n * s.k, 2);
  const float scales[] = {kTestScaleA, 0, 0, 0, kTestScaleB};  // the second one is aligned as the first
  std::vector<float> c(static_cast<size_t>(s.m * s.n));
  const auto bytes = static_cast<int64_t>(c.size() * sizeof(float));
  const BufferPtr on_a = lane.allocate(s.m * s.k), on_b = lane.allocate(s.n * s.k), on_c = lane.allocate(bytes),
                  on_scales = lane.allocate(sizeof scales);
  lane.to_device(on_a->data(), a.data(), on_a->size());
  lane.to_device(on_b->data(), b.data(), on_b->size());
  lane.to_device(on_scales->data(), scales, on_scales->size());
  const auto* const scale = on_scales->as<float>();
  try {
    gemm.run(on_a->data(), on_b->data(), on_c->data(), {.scale_a = scale, .scale_b = scale + 4});
    lane.to_host(c.data(), on_c->data(), bytes);
  } catch (const Error&) {  // the library refuses it
    return false;
  }
  return is_product(s, dtype_b, a, b, c);
}

std::optional<CudaGemm> CudaGemm::float8(CudaStream& lane, const GemmSpec& spec, DType dtype_b,
                                         const GemmAutotuneOptions& autotune) {
  if (capability(lane) < kLeastCapability) return {};
  if (spec.dtype == DType::f8_e5m2 && dtype_b == DType::f8_e5m2) return {};
  for (const int64_t extent : {spec.m, spec.n, spec.k})
    if (extent % kFloat8Multiple != 0) return {};
  static std::mutex mutex;
  static std::map<std::tuple<std::string, DType, DType>, bool> known;
  {
    const std::lock_guard lock(mutex);
    const auto [at, fresh] = known.try_emplace({lane.info().name, spec.dtype, dtype_b}, false);
    if (fresh && !lane.capturing()) {
      constexpr int64_t kM = 64, kN = 32, kK = 96;
      const GemmSpec small{.dtype = spec.dtype,
                           .out = DType::f32,
                           .m = kM,
                           .n = kN,
                           .k = kK,
                           .transpose_b = true,
                           .lda = kK,
                           .ldb = kK,
                           .ldc = kN,
                           .stride_a = 0,
                           .stride_b = 0,
                           .stride_c = 0};
      const std::shared_ptr<State> state = prepare(lane, small, CudaMath::full, {}, {}, dtype_b);
      at->second = state && multiplies_float8(lane, CudaGemm(state), small, dtype_b);
    }
    if (!at->second) return {};
  }
  std::shared_ptr<State> state = prepare(lane, spec, CudaMath::full, {}, autotune, dtype_b);
  return state ? std::optional(CudaGemm(std::move(state))) : std::nullopt;
}

}  // namespace lockstep
