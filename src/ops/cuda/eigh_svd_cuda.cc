// eigh and svd on the GPU, by cuSOLVER; on the host if that cannot be loaded. Matrices with elements that are not finite
// are replaced by zeros, and their results by NaN. Signs are those that the CPU chooses.
#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/matrix_kernels.h"

namespace lockstep {

// A symmetric matrix is its transpose; only the triangles change.
Kernel eigh_cuda(const KernelSpec& spec) {
  if (has_empty_results(spec)) return no_kernel();
  const Factorization f(spec);
  if (!f.solver) return {};
  const CudaMatrices a = f.matrices;
  const int64_t n = a.rows, size = n * n;
  MatrixMemory memory;
  const auto by_columns = memory.add(spec.in[0].bytes()), not_finite = memory.add(a.count * 4),
             info = memory.add(a.count * 4), signs = memory.add(a.count * n * f.element()),
             work = memory.add(f.solver->eigh_work(a));
  memory.allocate(*f.solver);
  if (spec.uncapturable) *spec.uncapturable = true;
  const MatrixKernels kernels(*f.lane, a.dtype);
  return [=, find = kernels.find_not_finite(), copy = kernels.copy(), fill = kernels.fill_failed(),
          choose = kernels.choose_signs(), transpose = kernels.transpose()](const void* const* in, void* const* out) {
    void* const vectors = memory.at(by_columns);
    auto *const bad = memory.at<int32_t>(not_finite), *const status = memory.at<int32_t>(info);
    const int64_t all = blocks_for_elements(size * a.count);
    f.lane->clear(bad, not_finite.bytes);
    f.lane->clear(status, info.bytes);
    find(all, in[0], n, n, a.count, int64_t{1}, bad);
    copy(all, MatrixMove{in[0], n, size, vectors, n, size, n, n, a.count, nullptr, 0, 0, bad});
    f.solver->eigh(a, vectors, out[0], status, memory.work(work));
    fill(blocks_for_elements(n * a.count), out[0], n, a.count, bad, status);
    choose(blocks_for_warps(n * a.count),
           VectorSigns{vectors, n, 1, n, size, n, a.count, nullptr, 0, 0, bad, status, memory.at(signs)});
    const MatrixMove move{vectors, n, size, out[1], n, size, n, n, a.count, memory.at(signs), n};
    transpose(transpose_blocks(move), move);
  };
}

namespace {

// cuSOLVER factors matrices with at least as many rows as columns. Of a wide matrix it gets the transpose, which is the
// row-major matrix as it is: then the vectors on its left side are those of Vh.
class SvdOnGpu {
 public:
  SvdOnGpu(const KernelSpec& spec, const Factorization& f)
      : lane_(f.lane),
        solver_(f.solver),
        rows_(f.matrices.rows),
        columns_(f.matrices.columns),
        count_(f.matrices.count),
        element_(f.element()),
        tall_(rows_ > columns_),
        a_{f.matrices.dtype, std::max(rows_, columns_), std::min(rows_, columns_), count_},
        with_vectors_(spec.out.size() > 1),
        is_full_(spec.attrs.get<bool>("full_matrices")),
        batched_(CudaSolver::svd_is_batched(a_)),
        jacobi_(CudaSolver::svd_is_jacobi(a_)) {
    const MatrixKernels kernels(*f.lane, a_.dtype);
    find_ = kernels.find_not_finite();
    copy_ = kernels.copy();
    transpose_ = kernels.transpose();
    fill_ = kernels.fill_failed();
    if (with_vectors_) choose_ = kernels.choose_signs();
    divide_memory();
  }

  void run(const void* in, void* const* out) const {
    auto *const bad = memory_.at<int32_t>(not_finite_), *const status = memory_.at<int32_t>(info_);
    lane_->clear(bad, not_finite_.bytes);
    lane_->clear(status, info_.bytes);
    find_(blocks_for_elements(rows_ * columns_ * count_), in, rows_, columns_, count_, int64_t{0}, bad);
    const int64_t size = rows_ * columns_, lead = tall_ ? rows_ : columns_;
    place(tall_,
          MatrixMove{in, columns_, size, memory_.at(matrix_), lead, size, rows_, columns_, count_, nullptr, 0, 0, bad});
    void* const s = out[with_vectors_ ? 1 : 0];
    const bool has_vectors = with_vectors_ || jacobi_;
    solver_->svd(a_, vectors(), memory_.at(matrix_),
                 {s, has_vectors ? memory_.at(left_) : nullptr, has_vectors ? memory_.at(right_) : nullptr}, status,
                 memory_.work(work_));
    fill_(blocks_for_elements(k() * count_), s, k(), count_, bad, status);
    if (!with_vectors_) return;
    if (tall_)
      write_tall(out[0], out[2]);
    else
      write_wide(out[0], out[2]);
  }

 private:
  int64_t k() const { return a_.columns; }
  CudaSolver::Vectors vectors() const {
    return !with_vectors_ ? CudaSolver::Vectors::none
           : is_full_     ? CudaSolver::Vectors::full
                          : CudaSolver::Vectors::thin;
  }
  // The vectors on the left side of cuSOLVER's matrix: how many are computed and wanted. Each is a row of a_.rows.
  int64_t left_stride() const { return a_.rows * (is_full_ || batched_ ? a_.rows : k()); }
  int64_t left_wanted() const { return is_full_ ? a_.rows : k(); }

  void divide_memory() {
    matrix_ = memory_.add(a_.elements() * count_ * element_);
    not_finite_ = memory_.add(count_ * 4);
    info_ = memory_.add(count_ * 4);
    if (with_vectors_ || jacobi_) {  // may be written also if only the values are wanted
      left_ = memory_.add(left_stride() * count_ * element_);
      right_ = memory_.add(k() * k() * count_ * element_);
    }
    if (with_vectors_) {
      signs_ = memory_.add(k() * count_ * element_);
      left_signs_ = memory_.add(left_wanted() * count_ * element_);
    }
    work_ = memory_.add(solver_->svd_work(a_, vectors()));
    memory_.allocate(*solver_);
  }

  // The signs of the vectors on one side.
  void choose(VectorSigns signs) const {
    signs.count = count_;
    signs.not_finite = memory_.at<int32_t>(not_finite_);
    signs.info = memory_.at<int32_t>(info_);
    choose_(blocks_for_warps(signs.vectors * count_), signs);
  }
  void place(bool transposed, const MatrixMove& move) const {
    if (transposed)
      transpose_(transpose_blocks(move), move);
    else
      copy_(blocks_for_elements(move.rows * move.columns * move.count), move);
  }

  // U has the vectors of the left side as columns, Vh those of the right side as rows: k of them, with the signs of U.
  void write_tall(void* u, void* vh) const {
    const int64_t m = a_.rows, wanted = left_wanted();
    void *const left = memory_.at(left_), *const signs = memory_.at(left_signs_);
    choose({.x = left, .n = m, .lead = m, .stride = left_stride(), .vectors = wanted, .factors = signs});
    place(true, {left, m, left_stride(), u, wanted, m * wanted, wanted, m, count_, signs, wanted});
    place(!jacobi_,
          {memory_.at(right_), k(), k() * k(), vh, k(), k() * k(), k(), k(), count_, signs, wanted, !jacobi_});
  }

  // U has the vectors of the right side as columns, Vh those of the left side as rows: the first k with the signs of U.
  void write_wide(void* u, void* vh) const {
    const int64_t n = a_.rows, wanted = left_wanted(), size = k() * k();
    void *const left = memory_.at(left_), *const right = memory_.at(right_), *const signs = memory_.at(signs_),
                *const left_signs = memory_.at(left_signs_);
    choose({.x = right,
            .n = k(),
            .step = jacobi_ ? 1 : k(),
            .lead = jacobi_ ? k() : 1,
            .stride = size,
            .vectors = k(),
            .factors = signs});
    place(jacobi_, {right, k(), size, u, k(), size, k(), k(), count_, signs, k(), !jacobi_});
    choose({.x = left,
            .n = n,
            .lead = n,
            .stride = left_stride(),
            .vectors = wanted,
            .given = signs,
            .given_vectors = k(),
            .given_lead = k(),
            .factors = left_signs});
    place(false, {left, n, left_stride(), vh, n, wanted * n, wanted, n, count_, left_signs, wanted});
  }

  CudaStream* lane_;
  CudaSolver* solver_;
  int64_t rows_, columns_, count_, element_;
  bool tall_;
  CudaMatrices a_;  // as cuSOLVER gets them
  bool with_vectors_, is_full_, batched_, jacobi_;
  MatrixKernel find_, copy_, transpose_, fill_, choose_;
  MatrixMemory memory_;
  MatrixMemory::Array matrix_, not_finite_, info_, left_, right_, signs_, left_signs_, work_;
};

}  // namespace

Kernel svd_cuda(const KernelSpec& spec) {
  if (has_empty_results(spec)) return no_kernel();
  const Factorization f(spec);
  if (!f.solver) return {};
  if (spec.uncapturable) *spec.uncapturable = true;
  return [svd = SvdOnGpu(spec, f)](const void* const* in, void* const* out) { svd.run(in[0], out); };
}

}  // namespace lockstep
