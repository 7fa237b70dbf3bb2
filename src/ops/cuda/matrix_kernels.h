// What the GPU kernels of factorizations share: the solver, device memory, and the kernels around the routines of cuSOLVER
// and cuBLAS (kernels/matrices.cuh). Made and called by the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lane/cuda/code.h"
#include "lane/cuda/solver_cuda.h"
#include "program/op.h"

namespace lockstep {

// The members are explained in matrices.cuh, which has the same. Defaults: dense matrices, nothing but a copy.
struct MatrixMove {
  const void* in = nullptr;
  int64_t in_lead = 0, in_stride = 0;
  void* out = nullptr;
  int64_t out_lead = 0, out_stride = 0;
  int64_t rows = 0, columns = 0, count = 0;
  const void* factors = nullptr;
  int64_t vectors = 0, by_column = 0;
  const int32_t* zero = nullptr;
  int64_t upper = 0;
};
struct VectorSigns {
  const void* x = nullptr;
  int64_t n = 0, step = 1, lead = 0, stride = 0;
  int64_t vectors = 0, count = 0;
  const void* given = nullptr;
  int64_t given_vectors = 0, given_lead = 0;
  const int32_t *not_finite = nullptr, *info = nullptr;
  void* factors = nullptr;
};

// The header of a kernel, which sets its number of threads.
enum class MatrixHeader : uint8_t { matrices, small_matrices };

// A kernel of such a header. Arguments are pointers, int64_t and the structs above.
class MatrixKernel {
 public:
  MatrixKernel() = default;
  // `name`: of the function; `parameters`: those of the kernel, which passes them on in order.
  MatrixKernel(CudaStream& lane, DType dtype, const char* name, const char* parameters,
               MatrixHeader header = MatrixHeader::matrices);

  template <class... Arguments>
  void operator()(int64_t blocks, const Arguments&... arguments) const {
    if (blocks == 0) return;
    void* all[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    launch(blocks, all);
  }

 private:
  void launch(int64_t blocks, void** arguments) const;

  CudaStream* lane_ = nullptr;
  int threads_ = 0;
  CudaFunction function_;
};

// The kernels for an element type. Each is compiled when it is first made, and shared by all shapes.
class MatrixKernels {
 public:
  MatrixKernels(CudaStream& lane, DType dtype) : lane_(&lane), dtype_(dtype) {}

  MatrixKernel copy() const;       // of MatrixMove; copy_blocks()
  MatrixKernel transpose() const;  // of MatrixMove; transpose_blocks()
  MatrixKernel find_not_finite() const;
  MatrixKernel fill_failed() const;
  MatrixKernel choose_signs() const;  // of VectorSigns
  MatrixKernel check_cholesky() const;
  MatrixKernel finish_cholesky() const;
  MatrixKernel permute_rows() const;
  MatrixKernel write_pointers() const;

  // Of small_matrices.cuh, for is_small().
  MatrixKernel small_cholesky() const;          // small_blocks()
  MatrixKernel small_triangular_solve() const;  // small_solve_blocks()
  MatrixKernel small_lu() const;                // small_blocks()
  MatrixKernel small_qr() const;                // small_blocks()

 private:
  CudaStream* lane_;
  DType dtype_;
};

// The solver of the lane and the matrices of the operand in row-major order. `solver` is null if they are to be factored on
// the host.
struct Factorization {
  CudaStream* lane;
  CudaSolver* solver;
  CudaMatrices matrices;

  explicit Factorization(const KernelSpec& spec);
  int64_t element() const { return size_of(matrices.dtype); }
};

// Whether no result has elements.
bool has_empty_results(const KernelSpec& spec);
// A kernel that does nothing.
Kernel no_kernel();

// Divides memory into arrays. add() all of them before allocate().
class MatrixMemory {
 public:
  struct Array {
    int64_t offset = 0, bytes = 0;
  };
  Array add(int64_t bytes);
  void allocate(CudaSolver& solver) { memory_ = solver.workspace(bytes_); }
  template <class T = void>
  T* at(const Array& array) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_->data()) + array.offset);
  }
  CudaSolver::Work work(const Array& array) const { return {at(array), array.bytes}; }

 private:
  int64_t bytes_ = 0;
  BufferPtr memory_;
};

// The thread blocks for a thread per element, or for a warp per vector.
int64_t blocks_for_elements(int64_t elements);
int64_t blocks_for_warps(int64_t warps);
int64_t transpose_blocks(const MatrixMove& move);
int64_t small_blocks(int64_t matrices);
int64_t small_solve_blocks(int64_t matrices, int64_t sides);

// Whether an own kernel factors matrices of this shape: it launches once, and can be captured as part of a graph.
bool is_small(int64_t rows, int64_t columns);

}  // namespace lockstep
