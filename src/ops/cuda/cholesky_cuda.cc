// cholesky and triangular_solve on the GPU: own kernels for small matrices, else cuSOLVER and cuBLAS; on the host if these
// cannot be loaded. They see the transposes of row-major matrices: triangles and sides change, and nothing is copied for
// the layout.
#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix_kernels.h"
#include "ops/matrix_values.h"

namespace lockstep {
namespace {

Kernel small_cholesky(const KernelSpec& spec) {
  const int64_t n = spec.in[0].shape.back(), matrices = count(spec.in[0].shape) / (n * n);
  return [=, kernel = MatrixKernels(*spec.cuda, spec.in[0].dtype).small_cholesky()](
             const void* const* in, void* const* out) { kernel(small_blocks(matrices), in[0], n, matrices, out[0]); };
}

Kernel small_triangular_solve(const KernelSpec& spec) {
  const auto flag = [&](const char* name) -> int64_t { return spec.attrs.get<bool>(name) ? 1 : 0; };
  const int64_t left = flag("left"), lower = flag("lower"), transpose = flag("transpose"), unit = flag("unit_diagonal");
  const MatrixDims dims(spec.in[1].shape);
  const int64_t n = left ? dims.rows : dims.columns, sides = left ? dims.columns : dims.rows;
  return
      [=, matrices = count(dims.batch), kernel = MatrixKernels(*spec.cuda, spec.in[0].dtype).small_triangular_solve()](
          const void* const* in, void* const* out) {
        kernel(small_solve_blocks(matrices, sides), in[0], in[1], out[0], n, sides, left, lower, transpose, unit);
      };
}

}  // namespace

Kernel cholesky_cuda(const KernelSpec& spec) {
  if (has_empty_results(spec)) return no_kernel();
  if (is_small(spec.in[0].shape.back(), 1)) return small_cholesky(spec);
  const Factorization f(spec);
  if (!f.solver) return {};
  const CudaMatrices a = f.matrices;
  const int64_t n = a.rows, size = n * n;
  const bool batched = CudaSolver::is_batched(a);
  MatrixMemory memory;
  const auto info = memory.add(a.count * 4), pointers = memory.add(a.count * 8),
             turned = memory.add(batched ? 0 : spec.in[0].bytes()), work = memory.add(f.solver->cholesky_work(a));
  memory.allocate(*f.solver);
  if (spec.uncapturable) *spec.uncapturable = true;
  const MatrixKernels kernels(*f.lane, a.dtype);
  return
      [=, bytes = spec.in[0].bytes(), write_pointers = kernels.write_pointers(), transpose = kernels.transpose(),
       check = kernels.check_cholesky(), finish = kernels.finish_cholesky()](const void* const* in, void* const* out) {
        void* const l = out[0];
        auto* const failed = memory.at<int32_t>(info);
        f.lane->clear(failed, info.bytes);
        if (batched) {
          void* const addresses = memory.at(pointers);
          f.lane->copy(l, in[0], bytes);
          write_pointers(blocks_for_elements(a.count), l, size, a.count, addresses);
          f.solver->cholesky(a, l, addresses, failed, memory.work(work));
        } else {
          void* const columns = memory.at(turned);
          const MatrixMove there{in[0], n, size, columns, n, size, n, n, a.count};
          const MatrixMove back{columns, n, size, l, n, size, n, n, a.count};
          transpose(transpose_blocks(there), there);
          f.solver->cholesky(a, columns, nullptr, failed, memory.work(work));
          transpose(transpose_blocks(back), back);
        }
        check(blocks_for_elements(n * a.count), l, n, a.count, failed);
        finish(blocks_for_elements(a.elements() * a.count), l, n, a.count, failed);
      };
}

Kernel triangular_solve_cuda(const KernelSpec& spec) {
  if (has_empty_results(spec)) return no_kernel();
  if (is_small(spec.in[0].shape.back(), 1)) return small_triangular_solve(spec);
  const Factorization f(spec);
  if (!f.solver) return {};
  const CudaMatrices a = f.matrices;
  const MatrixDims dims(spec.in[1].shape);
  const CudaMatrices b{a.dtype, dims.columns, dims.rows, a.count};  // transposed
  const TriangularSystem system{!spec.attrs.get<bool>("left"), !spec.attrs.get<bool>("lower"),
                                spec.attrs.get<bool>("transpose"), spec.attrs.get<bool>("unit_diagonal")};
  MatrixMemory memory;
  const auto pointers_a = memory.add(a.count * 8), pointers_x = memory.add(a.count * 8);
  memory.allocate(*f.solver);
  const MatrixKernels kernels(*f.lane, a.dtype);
  return [=, bytes = spec.in[1].bytes(), write_pointers = kernels.write_pointers()](const void* const* in,
                                                                                    void* const* out) {
    f.lane->copy(out[0], in[1], bytes);
    void *const of_a = memory.at(pointers_a), *const of_x = memory.at(pointers_x);
    if (CudaSolver::is_batched(a)) {
      write_pointers(blocks_for_elements(a.count), in[0], a.elements(), a.count, of_a);
      write_pointers(blocks_for_elements(a.count), out[0], b.elements(), a.count, of_x);
    }
    f.solver->triangular_solve(system, b, in[0], out[0], of_a, of_x);
  };
}

}  // namespace lockstep
