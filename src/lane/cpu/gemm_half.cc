#include "lane/cpu/gemm_half.h"

#include <algorithm>
#include <vector>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lockstep {

#if defined(__aarch64__)
extern const HalfKernel kBf16Neon;
extern const HalfKernel kF16Neon;
#elif defined(__x86_64__)
extern const HalfKernel kBf16Avx512;
extern const HalfKernel kBf16Amx;
extern const HalfKernel kBf16Widened;
extern const HalfKernel kF16Widened;
extern const HalfKernel kF32Avx512;
#endif

namespace {

// A panel of A and one of B of this depth stay in the first-level cache.
constexpr int64_t kMaxDepth = 1024;
// A block of A of this size stays in the second-level cache.
constexpr int64_t kBlockBytes = int64_t{256} << 10;

int64_t round_to(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

// Whether the machine has AMX for bf16 and the operating system lets this process use its registers.
bool amx_allowed() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kAmxBf16) || !(d & kAmxTile)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::vector<const HalfKernel*> supported() {
  std::vector<const HalfKernel*> kernels;
#if defined(__aarch64__)
  if (getauxval(AT_HWCAP2) & HWCAP2_BF16) kernels.push_back(&kBf16Neon);
  if (getauxval(AT_HWCAP) & HWCAP_ASIMDFHM) kernels.push_back(&kF16Neon);
#elif defined(__x86_64__)
  if (!has_avx512()) return kernels;
  if (amx_allowed()) kernels.push_back(&kBf16Amx);
  // On Intel cores vdpbf16ps takes four times as long as an fma for twice the work; on AMD cores it takes as long.
  const bool fast_pairs = __builtin_cpu_is("amd");
  if (!fast_pairs) kernels.push_back(&kBf16Widened);
  if (__builtin_cpu_supports("avx512bf16")) kernels.push_back(&kBf16Avx512);
  if (fast_pairs) kernels.push_back(&kBf16Widened);
  kernels.push_back(&kF16Widened);
#endif
  return kernels;
}

}  // namespace

std::span<const HalfKernel* const> half_kernels() {
  static const std::vector<const HalfKernel*> kernels = supported();
  return kernels;
}

const HalfKernel* half_kernel(DType dtype) {
  for (const HalfKernel* const kernel : half_kernels())
    if (kernel->dtype == dtype) return kernel;
  return nullptr;
}

const HalfKernel* gemm_kernel(DType dtype, [[maybe_unused]] int64_t m, [[maybe_unused]] int64_t n) {
#if defined(__x86_64__)
  static const bool avx512 = has_avx512();
  const bool fills = 2 * m >= kF32Avx512.rows && 2 * n >= kF32Avx512.cols;
  if (dtype == DType::f32) return avx512 && fills ? &kF32Avx512 : nullptr;
#endif
  return half_kernel(dtype);
}

namespace detail {

int64_t half_depth(const HalfKernel& kernel, int64_t k) {
  const int64_t panels = std::max<int64_t>(1, (k + kMaxDepth - 1) / kMaxDepth);
  return round_to((k + panels - 1) / panels, kernel.group);
}

int64_t packed_right_bytes(const HalfKernel& kernel, int64_t cols, int64_t k) {
  return round_to(cols, kernel.cols) * round_to(k, kernel.group) * kernel.packed_bytes;
}

template <class T>
void pack_right(const HalfKernel& kernel, const GemmOperand<T>& b, int64_t cols, int64_t k, void* to) {
  pack_right_columns(kernel, b, 0, cols, cols, k, to);
}

template <class T>
void pack_right_columns(const HalfKernel& kernel, const GemmOperand<T>& b, int64_t begin, int64_t end, int64_t cols,
                        int64_t k, void* to) {
  const int64_t step = half_depth(kernel, k);
  for (int64_t p = 0; p < k; p += step) {
    const int64_t depth = std::min(step, k - p);
    kernel.pack_b(
        b.at(p, begin).data, b.ld, !b.transposed, end - begin, depth,
        static_cast<char*>(to) + packed_right_bytes(kernel, cols, p) + packed_right_bytes(kernel, begin, depth));
  }
}

template <class T>
void multiply_half(const HalfKernel& kernel, Pool& pool, int thread, const GemmOperand<T>& a, const Right<T>& b,
                   int64_t rows, int64_t cols, int64_t k, HalfResult result) {
  if (k == 0) {
    for (int64_t r = 0; r < rows && !result.accumulate; ++r) {
      if (result.rounded)
        std::fill_n(static_cast<T*>(result.rounded) + r * result.rounded_ld, cols, T());
      else
        std::fill_n(result.sums + r * result.ld, cols, 0.0f);
    }
    return;
  }
  const int64_t step = half_depth(kernel, k);
  if (result.rounded && step < k) {
    result.sums =
        static_cast<float*>(pool.scratch(thread, kSumSlot, rows * cols * static_cast<int64_t>(sizeof(float))));
    result.ld = cols;
  }
  const int64_t lane_bytes = step * kernel.packed_bytes;
  const int64_t block = std::max(kernel.rows, kBlockBytes / lane_bytes / kernel.rows * kernel.rows);
  void* const packed_a =
      pool.scratch(thread, kASlot,
                   round_to(std::min(block, rows), kernel.rows) * round_to(step, kernel.group) * kernel.packed_bytes);
  for (int64_t p = 0; p < k; p += step) {
    const int64_t depth = std::min(step, k - p);
    const void* packed_b;
    if (b.packed) {
      packed_b = static_cast<const char*>(b.packed) + packed_right_bytes(kernel, cols, p);
    } else {
      void* const packed = pool.scratch(thread, kBSlot, packed_right_bytes(kernel, cols, depth));
      kernel.pack_b(b.stored.at(p, 0).data, b.stored.ld, !b.stored.transposed, cols, depth, packed);
      packed_b = packed;
    }
    for (int64_t row = 0; row < rows; row += block) {
      const int64_t count = std::min(block, rows - row);
      kernel.pack_a(a.at(row, p).data, a.ld, a.transposed, count, depth, packed_a);
      HalfResult part = result;
      if (part.sums) part.sums += row * part.ld;
      if (part.rounded) part.rounded = static_cast<T*>(part.rounded) + row * part.rounded_ld;
      if (p + depth < k) part.rounded = nullptr;
      part.accumulate = p > 0 || result.accumulate;
      kernel.multiply(packed_a, packed_b, count, cols, depth, part);
    }
  }
}

template void pack_right(const HalfKernel&, const GemmOperand<float>&, int64_t, int64_t, void*);
template void pack_right(const HalfKernel&, const GemmOperand<BFloat16>&, int64_t, int64_t, void*);
template void pack_right(const HalfKernel&, const GemmOperand<Float16>&, int64_t, int64_t, void*);
template void pack_right_columns(const HalfKernel&, const GemmOperand<BFloat16>&, int64_t, int64_t, int64_t, int64_t,
                                 void*);
template void pack_right_columns(const HalfKernel&, const GemmOperand<Float16>&, int64_t, int64_t, int64_t, int64_t,
                                 void*);
template void pack_right_columns(const HalfKernel&, const GemmOperand<float>&, int64_t, int64_t, int64_t, int64_t,
                                 void*);
template void multiply_half(const HalfKernel&, Pool&, int, const GemmOperand<BFloat16>&, const Right<BFloat16>&,
                            int64_t, int64_t, int64_t, HalfResult);
template void multiply_half(const HalfKernel&, Pool&, int, const GemmOperand<Float16>&, const Right<Float16>&, int64_t,
                            int64_t, int64_t, HalfResult);
template void multiply_half(const HalfKernel&, Pool&, int, const GemmOperand<float>&, const Right<float>&, int64_t,
                            int64_t, int64_t, HalfResult);

}  // namespace detail
}  // namespace lockstep
