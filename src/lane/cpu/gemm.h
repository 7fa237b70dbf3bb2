// Gemm: the matrix product C = A x B on one CPU lane, batched, with an optional epilogue on each finished tile.
//
//   const Gemm gemm = Gemm::prepare({.m = 128, .n = 1024, .k = 784}, pool.threads());
//   gemm.run(pool, a, b, c);
//   gemm.run(pool, a, b, nullptr, [&](const Tile& tile) { ... });      // the product itself never reaches memory
//
// A prepared Gemm is immutable; several threads may run it at the same time.
//
// The result does not depend on the number of threads or on scheduling. Long sums over k are divided into chunks that
// depend on the shape alone, and are added in order. The tiles of C may depend on the number of threads only if the
// order of an element's sum depends on k alone, whatever the tile. Lockstep's kernels guarantee this; for OpenBLAS
// prepare() tests it once by comparing bits. If it does not hold (some kernels for x86), the tiles depend on the shape
// alone.
#pragma once

#include <cstdint>
#include <optional>

#include "lane/cpu/gemm_half.h"
#include "lane/cpu/tile.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// Extents and strides in elements. A is [m, k], or [k, m] if transposed; B is [k, n], or [n, k]; C is [m, n].
// All are row-major.
struct GemmSpec {
  static constexpr int64_t kDense = -1;

  DType dtype = DType::f32;       // of A and B: any but bool
  std::optional<DType> out = {};  // of C and the tiles; default: dtype. f32 for bf16 and f16 keeps the sums unrounded
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t lda = kDense, ldb = kDense, ldc = kDense;  // from one stored row to the next
  int64_t batch = 1;
  int64_t stride_a = kDense, stride_b = kDense,
          stride_c = kDense;  // from one matrix to the next; 0: shared by the batch
};

class Gemm {
 public:
  // Chooses the tiles for a pool of `threads` threads. Throws Error if the dtype is bool, if `out` is neither the dtype
  // nor f32 for a 16-bit float, or if an extent does not fit 31 bits.
  static Gemm prepare(const GemmSpec& spec, int threads) {
    return prepare(spec, threads, gemm_kernel(spec.dtype, spec.m, spec.n));
  }
  // The same with a given kernel for that dtype; null: OpenBLAS, after a conversion of 16-bit floats to f32.
  static Gemm prepare(const GemmSpec& spec, int threads, const HalfKernel* kernel);

  // Writes C if c is not null, and calls the epilogue, if given, for every tile. bf16 and f16 are summed in f32 and
  // rounded once; integers wrap around. k = 0 gives zeros; m, n or batch 0 does nothing. C must not overlap A or B.
  // Does not allocate once scratch and cache are warm.
  void run(Pool& pool, const void* a, const void* b, void* c, Epilogue epilogue = {}) const;

  const GemmSpec& spec() const { return spec_; }
  DType out() const { return *spec_.out; }
  // The extents of the tiles of an epilogue (the last of a row or column may be smaller).
  int64_t tile_rows() const { return tile_rows_; }
  int64_t tile_cols() const { return tile_cols_; }

 private:
  GemmSpec spec_;
  const HalfKernel* kernel_ = nullptr;
  int64_t tile_rows_ = 0, tile_cols_ = 0;
  int64_t row_tiles_ = 0, col_tiles_ = 0;
  int64_t k_chunk_ = 0, k_chunks_ = 1;
  int64_t tiles_per_task_ = 1;

  template <class T, class Out>
  friend class GemmRun;
};

}  // namespace lockstep
