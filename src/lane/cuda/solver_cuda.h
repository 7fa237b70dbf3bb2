// CudaSolver: factorizations of batches of matrices on the GPU, by cuSOLVER and cuBLAS. It enqueues work on the stream of
// its lane. What a routine says about a matrix (`info`) stays in device memory; 0 means success. Safe from any thread, one
// program at a time.
//
// Only triangular_solve() and a batched lu() may be captured as a graph: cuSOLVER does not support that, and its eigh()
// and svd() of one matrix may wait for the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lane/cpu/lapack.h"
#include "lane/cuda/cuda_stream.h"
#include "lockstep/dtype.h"

namespace lockstep {

// Column-major dense matrices of f32 or f64, one after another.
struct CudaMatrices {
  DType dtype = DType::f32;
  int64_t rows = 0, columns = 0, count = 0;

  int64_t elements() const { return rows * columns; }
};

class CudaSolver {
 public:
  // That of a lane, made on first use. Null if the libraries cannot be loaded or make no handle.
  // REQUIRES: the lane is not capturing.
  static CudaSolver* of(CudaStream& lane);

  // Memory that all factorizations of the lane share: they run one after another. Holders keep it when it grows.
  BufferPtr workspace(int64_t bytes);

  // Each routine needs as many bytes of work memory as the function of the same name with `_work` returns.
  // REQUIRES: no extent is 0, and a matrix has fewer than 2^31 elements.

  struct Work {
    void* data = nullptr;
    int64_t bytes = 0;
  };

  // Whether one call computes all matrices. Then `pointers` holds the address of each matrix, in device memory.
  static bool is_batched(const CudaMatrices& a);

  // Overwrites a triangle of a, of which only this is read: the upper one with U, where A = U^T U, if is_batched(a);
  // else the lower one with L, where A = L L^T, which is faster for large matrices. Destroys the rest.
  int64_t cholesky_work(const CudaMatrices& a);
  void cholesky(const CudaMatrices& a, void* data, void* pointers, int32_t* info, const Work& work);

  // Overwrites b with X. `system` is that of the column-major matrices. Those of a are square: is_batched(a) counts.
  void triangular_solve(const TriangularSystem& system, const CudaMatrices& b, const void* a, void* x,
                        const void* pointers_a, const void* pointers_x);

  // Overwrites a with its factors. `pivots` [count, min(rows, columns)] are LAPACK's, which begin at 1. Batched only if
  // the matrices are square.
  int64_t lu_work(const CudaMatrices& a);
  void lu(const CudaMatrices& a, void* data, void* pointers, int32_t* pivots, int32_t* info, const Work& work);

  // qr() overwrites a with R and the reflections that orthogonal() turns into the first columns of Q. Matrices begin
  // `stride` elements apart. `tau` [count, min(rows, columns)].
  int64_t qr_work(const CudaMatrices& a, int64_t q_columns);
  void qr(const CudaMatrices& a, int64_t stride, void* data, void* tau, int32_t* info, const Work& work);
  void orthogonal(const CudaMatrices& a, int64_t stride, int64_t q_columns, void* data, const void* tau, int32_t* info,
                  const Work& work);

  // Overwrites a, of which the upper triangle is read, with the eigenvectors as columns.
  int64_t eigh_work(const CudaMatrices& a);
  void eigh(const CudaMatrices& a, void* data, void* w, int32_t* info, const Work& work);

  // REQUIRES: rows >= columns. Overwrites a. `vectors`: N: only s. S: u [rows, columns], else A: u [rows, rows]. Computes
  // the transpose of V; if svd_is_jacobi(), V itself, and needs memory for the vectors also for N; if svd_is_batched(),
  // moreover u [rows, rows], also for S.
  enum class Vectors : char { none = 'N', thin = 'S', full = 'A' };
  struct Svd {
    void *s, *u, *v;
  };
  static bool svd_is_batched(const CudaMatrices& a);
  static bool svd_is_jacobi(const CudaMatrices& a);
  int64_t svd_work(const CudaMatrices& a, Vectors vectors);
  void svd(const CudaMatrices& a, Vectors vectors, void* data, const Svd& out, int32_t* info, const Work& work);

  ~CudaSolver();
  CudaSolver(const CudaSolver&) = delete;
  CudaSolver& operator=(const CudaSolver&) = delete;

 private:
  struct Handles;
  explicit CudaSolver(CudaStream& lane);

  CudaStream& lane_;
  std::unique_ptr<Handles> handles_;
  BufferPtr workspace_;
};

}  // namespace lockstep
