#include "lane/cpu/blas.h"

#include <sys/mman.h>

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

}  // namespace

void prepare_blas() {
  [[maybe_unused]] static const bool once = [] {
    openblas_set_num_threads(1);
    touch_work_areas();
    return true;
  }();
}

}  // namespace lockstep
