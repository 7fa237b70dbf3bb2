#include "lane/cpu/blas.h"

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "lane/memory.h"

// OpenBLAS's own allocator of work areas, a part of every build of it but of no header.
extern "C" {
[[gnu::weak]] void* blas_memory_alloc(int);
[[gnu::weak]] void blas_memory_free(void*);
}

namespace lockstep {

namespace {

// OpenBLAS packs operands into work areas of which each concurrent call takes one. Its kernels prefetch a few KiB past
// what was packed, and a prefetch from a page that was never touched walks the page table in vain every time: measured
// on Neoverse V1, products of 784 x 32 x 25 ran at a quarter of their speed, those of 196 x 64 x 800 at nine tenths. So
// every page that small products come near is mapped beforehand; reading maps them all to one page of zeros.
void touch_work_areas() {
  constexpr int64_t kTouched = int64_t{4} << 20, kPage = 4096;
  if (!blas_memory_alloc || !blas_memory_free) return;
  std::vector<void*> areas(static_cast<size_t>(available_cpus()));
  for (void*& area : areas) {
    area = blas_memory_alloc(0);
    const auto address = reinterpret_cast<uintptr_t>(area) / kPage * kPage;
    madvise(reinterpret_cast<void*>(address), kTouched, MADV_HUGEPAGE);
    const volatile char* const bytes = static_cast<const volatile char*>(area);
    for (int64_t i = 0; i < kTouched; i += kPage) static_cast<void>(bytes[i]);
  }
  for (void* area : areas) blas_memory_free(area);
}

template <class T>
bool sums_by_depth_alone() {
  // Odd remainders at the edges; every piece above 10^6.
  constexpr int64_t kRows = 161, kCols = 323, kDepth = 277, kRowCut = 80, kColCut = 176;
  std::vector<T> a(kRows * kDepth), b(kDepth * kCols), whole(kRows * kCols), cut(whole.size());
  uint32_t state = 1;
  for (std::vector<T>* const operand : {&a, &b})
    for (T& value : *operand)
      value = static_cast<T>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) / T{3e9};
  blas_gemm(false, false, kRows, kCols, kDepth, a.data(), kDepth, b.data(), kCols, false, whole.data(), kCols);
  for (const int64_t row : {int64_t{0}, kRowCut})
    for (const int64_t col : {int64_t{0}, kColCut})
      blas_gemm(false, false, row == 0 ? kRowCut : kRows - kRowCut, col == 0 ? kColCut : kCols - kColCut, kDepth,
                a.data() + row * kDepth, kDepth, b.data() + col, kCols, false, cut.data() + row * kCols + col, kCols);
  return std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(T)) == 0;
}

}  // namespace

bool blas_sums_by_depth_alone(bool of_doubles) {
  prepare_blas();
  static const bool floats = sums_by_depth_alone<float>();
  if (!of_doubles) return floats;
  static const bool doubles = sums_by_depth_alone<double>();
  return doubles;
}

void prepare_blas() {
  [[maybe_unused]] static const bool once = [] {
    openblas_set_num_threads(1);
    touch_work_areas();
    return true;
  }();
}

}  // namespace lockstep
