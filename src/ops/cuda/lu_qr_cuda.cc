// lu and qr on the GPU: own kernels for small matrices, else cuSOLVER and cuBLAS; on the host if these cannot be loaded.
// Their pivots and reflections belong to columns of column-major matrices: operands and results are transposed.
#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix_kernels.h"
#include "ops/matrix_values.h"

namespace lockstep {
namespace {

Kernel small_lu(const KernelSpec& spec) {
  const MatrixDims dims(spec.in[0].shape);
  return [m = dims.rows, n = dims.columns, matrices = count(dims.batch),
          kernel = MatrixKernels(*spec.cuda, spec.in[0].dtype).small_lu()](const void* const* in, void* const* out) {
    kernel(small_blocks(matrices), in[0], m, n, matrices, out[0], out[1], out[2]);
  };
}

Kernel small_qr(const KernelSpec& spec) {
  const MatrixDims dims(spec.in[0].shape);
  return [m = dims.rows, n = dims.columns, columns = spec.out[0].shape.back(), matrices = count(dims.batch),
          kernel = MatrixKernels(*spec.cuda, spec.in[0].dtype).small_qr()](const void* const* in, void* const* out) {
    kernel(small_blocks(matrices), in[0], m, n, columns, matrices, out[0], out[1]);
  };
}

bool has_small_matrices(const KernelSpec& spec) {
  const MatrixDims dims(spec.in[0].shape);
  return is_small(dims.rows, dims.columns);
}

}  // namespace

Kernel lu_cuda(const KernelSpec& spec) {
  if (has_empty_results(spec)) return no_kernel();
  if (has_small_matrices(spec)) return small_lu(spec);
  const Factorization f(spec);
  if (!f.solver) return {};
  const CudaMatrices a = f.matrices;
  const int64_t m = a.rows, n = a.columns, k = std::min(m, n);
  const bool batched = m == n && CudaSolver::is_batched(a);
  MatrixMemory memory;
  const auto by_columns = memory.add(spec.in[0].bytes()), info = memory.add(a.count * 4),
             pointers = memory.add(a.count * 8), exchanges = memory.add(a.count * k * 4),
             work = memory.add(batched ? 0 : f.solver->lu_work(a));
  memory.allocate(*f.solver);
  if (spec.uncapturable && !batched) *spec.uncapturable = true;
  const MatrixKernels kernels(*f.lane, a.dtype);
  return [=, transpose = kernels.transpose(), write_pointers = kernels.write_pointers(),
          permute = kernels.permute_rows()](const void* const* in, void* const* out) {
    void *const factors = memory.at(by_columns), *const addresses = memory.at(pointers);
    auto* const exchanged = memory.at<int32_t>(exchanges);
    MatrixMove move{in[0], n, m * n, factors, m, m * n, m, n, a.count};
    transpose(transpose_blocks(move), move);
    if (batched) write_pointers(blocks_for_elements(a.count), factors, a.elements(), a.count, addresses);
    f.solver->lu(a, factors, addresses, exchanged, memory.at<int32_t>(info), memory.work(work));
    move = {factors, m, m * n, out[0], n, m * n, n, m, a.count};
    transpose(transpose_blocks(move), move);
    permute(a.count, exchanged, m, k, out[1], out[2]);
  };
}

Kernel qr_cuda(const KernelSpec& spec) {
  if (has_empty_results(spec)) return no_kernel();
  if (has_small_matrices(spec)) return small_qr(spec);
  const Factorization f(spec);
  if (!f.solver) return {};
  const CudaMatrices a = f.matrices;
  const int64_t m = a.rows, n = a.columns, columns = spec.out[0].shape.back();
  const int64_t stride = m * std::max(n, columns);  // the reflections and all columns of Q
  MatrixMemory memory;
  const auto by_columns = memory.add(a.count * stride * f.element()), info = memory.add(a.count * 4),
             tau = memory.add(a.count * std::min(m, n) * f.element()), work = memory.add(f.solver->qr_work(a, columns));
  memory.allocate(*f.solver);
  if (spec.uncapturable) *spec.uncapturable = true;
  return [=, transpose = MatrixKernels(*f.lane, a.dtype).transpose()](const void* const* in, void* const* out) {
    void *const factors = memory.at(by_columns), *const scales = memory.at(tau);
    auto* const status = memory.at<int32_t>(info);
    if (columns > n) f.lane->clear(factors, by_columns.bytes);
    MatrixMove move{in[0], n, m * n, factors, m, stride, m, n, a.count};
    transpose(transpose_blocks(move), move);
    f.solver->qr(a, stride, factors, scales, status, memory.work(work));
    move = {factors, m, stride, out[1], n, columns * n, n, columns, a.count};
    move.upper = 1;
    transpose(transpose_blocks(move), move);
    f.solver->orthogonal(a, stride, columns, factors, scales, status, memory.work(work));
    move = {factors, m, stride, out[0], columns, m * columns, columns, m, a.count};
    transpose(transpose_blocks(move), move);
  };
}

}  // namespace lockstep
