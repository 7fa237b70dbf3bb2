#include "lane/cpu/blas.h"

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "lane/memory.h"

// OpenBLAS's allocator of work areas. Every build has it, but no header declares it.
extern "C" {
[[gnu::weak]] void* blas_memory_alloc(int);
[[gnu::weak]] void blas_memory_free(void*);
}

namespace lockstep {

namespace {

// OpenBLAS packs operands into work areas, one for each concurrent call. Its kernels prefetch a few KiB past the packed
// data, and a prefetch from an unmapped page walks the page table in vain every time. Measured on Neoverse V1: products
// of 784 x 32 x 25 ran at a quarter of their speed, those of 196 x 64 x 800 at nine tenths. So this maps the pages that
// small products use or prefetch; reading maps them all to one page of zeros.
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
bool is_position_independent() {
  // Odd remainders at the edges; each of the four parts is above 10^6.
  constexpr int64_t kRows = 161, kCols = 323, kDepth = 277, kRowSplit = 80, kColSplit = 176;
  std::vector<T> a(kRows * kDepth), b(kDepth * kCols), full(kRows * kCols), parts(full.size());
  uint32_t state = 1;
  for (std::vector<T>* const operand : {&a, &b})
    for (T& value : *operand)
      value = static_cast<T>(static_cast<int32_t>(state = state * 1664525u + 1013904223u)) / T{3e9};
  blas_gemm(false, false, kRows, kCols, kDepth, a.data(), kDepth, b.data(), kCols, false, full.data(), kCols);
  for (const int64_t row : {int64_t{0}, kRowSplit})
    for (const int64_t col : {int64_t{0}, kColSplit})
      blas_gemm(false, false, row == 0 ? kRowSplit : kRows - kRowSplit, col == 0 ? kColSplit : kCols - kColSplit,
                kDepth, a.data() + row * kDepth, kDepth, b.data() + col, kCols, false, parts.data() + row * kCols + col,
                kCols);
  return std::memcmp(full.data(), parts.data(), full.size() * sizeof(T)) == 0;
}

}  // namespace

bool blas_is_position_independent(bool for_double) {
  prepare_blas();
  static const bool floats = is_position_independent<float>();
  if (!for_double) return floats;
  static const bool doubles = is_position_independent<double>();
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
