// Gemm: the matrix product C = A x B on one CPU lane, batched, with an optional epilogue on each finished tile.
//
//   const Gemm gemm = Gemm::prepare({.m = 128, .n = 1024, .k = 784}, pool.threads());
//   gemm.run(pool, a, b, c);
//   gemm.run(pool, a, b, nullptr, [&](const Tile& tile) { ... });      // the product itself never reaches memory
//
// A prepared Gemm is immutable; any thread may run it, several at once.
//
// The result does not depend on the number of threads or on scheduling. Long sums over k are cut into chunks by the
// shape alone and added in order. Tiles of C follow the number of threads only where an element is added up in an order
// given by k alone, wherever the tile is cut: our own kernels do so, and prepare() finds out by comparing bits once
// whether OpenBLAS's do. Elsewhere (some kernels for x86) the tiles follow from the shape alone.
#pragma once

#include <cstdint>
#include <optional>

#include "lane/cpu/gemm_half.h"
#include "lane/cpu/tile.h"
#include "lane/pool.h"
#include "lockstep/dtype.h"

namespace lockstep {

// In elements. A is [m, k], or [k, m] when transposed; B is [k, n], or [n, k]; C is [m, n]; all row-major.
struct GemmSpec {
  static constexpr int64_t kDense = -1;

  DType dtype = DType::f32;  // of A and B: any but bool
  std::optional<DType> out =
      {};  // of C and the tiles: dtype unless given; f32 for bf16 and f16 keeps the sums unrounded
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t lda = kDense, ldb = kDense, ldc = kDense;  // from one stored row to the next
  int64_t batch = 1;
  int64_t stride_a = kDense, stride_b = kDense, stride_c = kDense;  // from one matrix to the next; 0: the same for all
};

class Gemm {
 public:
  // Decides on the tiles for a pool of that many threads. Throws Error when the dtype is bool, `out` is neither the
  // dtype nor f32 for a 16-bit float, or an extent does not fit 31 bits.
  static Gemm prepare(const GemmSpec& spec, int threads) { return prepare(spec, threads, half_kernel(spec.dtype)); }
  // The same by a given kernel for 16-bit floats, of their dtype; null converts them to f32.
  static Gemm prepare(const GemmSpec& spec, int threads, const HalfKernel* kernel);

  // Writes C where c is given, and calls the epilogue for every tile where one is given. bf16 and f16 are summed in f32
  // and rounded once; integers wrap around. k = 0 gives zeros, m or n or batch 0 does nothing. C must not overlap A or
  // B. Allocates nothing once scratch and cache are warm.
  void run(Pool& pool, const void* a, const void* b, void* c, Epilogue epilogue = {}) const;

  const GemmSpec& spec() const { return spec_; }
  DType out() const { return *spec_.out; }
  // The extents of the tiles an epilogue sees (the last of a row or column may be smaller).
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
