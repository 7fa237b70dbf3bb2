// The rows lu and qr.
#include <numeric>

#include "base/check.h"
#include "lane/cpu/blas.h"
#include "lane/cpu/lapack.h"
#include "ops/cuda/kernels.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/linalg.h"
#include "ops/linalg_cpu.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// ---- lu

std::vector<Type> lu_type(Types in, const Attrs&) {
  expect_operands("lu", in, 1);
  expect_matrices("lu", in[0]);
  const MatrixDims dims(in[0].shape);
  return {in[0], {DType::i32, dims.with(std::min(dims.rows, dims.columns))}, {DType::i32, dims.with(dims.rows)}};
}

Rule lu_rule(Types in, const Attrs&) { return matrix_rule(in[0], {"mn", "k", "m"}); }

// The identity matrix of x's type without its first m ones.
Value identity_beyond(Value x, int64_t m) {
  const Value identity = identity_like(x);
  const Value first_rows = leading_rows(identity, m);
  return identity - extend_matrix(first_rows, x.shape().back(), x.shape().back());
}

// L and U as square matrices, with the diagonal of an identity where the result has no columns or rows for them. With
// F = L^-1 dA U^-1 (rows permuted): dL = L tril(F, -1), dU = triu(F) U. This is the transpose.
Grads lu_vjp(const Vjp& v) {
  if (!v.cts[0]) return {{}};
  const Value packed = v.out[0], ct = v.cts[0];
  const MatrixDims dims(packed.shape());
  const int64_t m = dims.rows, n = dims.columns;
  const Value strict = lower_triangle(packed, -1);
  const Value low = m > n ? extend_matrix(strict, m, m) : leading_columns(strict, m);
  const Value l = low + identity_like(low);
  const Value upper = upper_triangle(packed);
  const Value high = m < n ? extend_matrix(upper, n, n) : leading_rows(upper, n);
  const Value u = m < n ? high + identity_beyond(high, m) : high;

  const Value from_l = matrix_product(matrix_transposed(l), ct);
  const Value from_u = matrix_product(ct, matrix_transposed(u));
  const Value below = lower_triangle(from_l, -1);
  const Value f = below + upper_triangle(from_u);
  const Value left = triangular_solve(l, f, {.left = true, .lower = true, .transpose = true, .unit_diagonal = true});
  const Value permuted = triangular_solve(u, left, {.left = false, .lower = false, .transpose = true});
  const int64_t batch = packed.rank() - 2;
  return {scatter_add(zeros_like(permuted), v.out[2], permuted, batch, batch)};
}

Kernel lu_cpu(const KernelSpec& spec) {
  prepare_blas();
  const MatrixDims dims(spec.in[0].shape);
  const int64_t m = dims.rows, n = dims.columns, k = std::min(m, n), matrices = count(dims.batch);
  return with_real(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const* in, void* const* out) {
      for_matrices(*pool, matrices, m * n * (k + 1), [&](int64_t i, int thread) {
        const T* const a = static_cast<const T*>(in[0]) + i * m * n;
        T* const packed = static_cast<T*>(out[0]) + i * m * n;
        int32_t *const pivots = static_cast<int32_t*>(out[1]) + i * k, *const rows =
                                                                           static_cast<int32_t*>(out[2]) + i * m;
        std::iota(rows, rows + m, 0);
        if (packed != a) std::copy(a, a + m * n, packed);
        if (k == 0) return;
        lapack_lu(m, n, packed, pivots, scratch_of<T>(*pool, thread, 0, lapack_lu_work(m, n)));
        for (int64_t r = 0; r < k; ++r) std::swap(rows[r], rows[pivots[r]]);
      });
    };
  });
}

bool alias_lu(Types, Types, const Attrs&, size_t in, size_t out) { return in == 0 && out == 0; }

// ---- qr

int64_t q_columns(const MatrixDims& dims, const Attrs& attrs) {
  return attrs.get<bool>("full_matrices") ? dims.rows : std::min(dims.rows, dims.columns);
}

std::vector<Type> qr_type(Types in, const Attrs& attrs) {
  expect_operands("qr", in, 1);
  expect_matrices("qr", in[0]);
  const MatrixDims dims(in[0].shape);
  const int64_t columns = q_columns(dims, attrs);
  return {{in[0].dtype, dims.with(dims.rows, columns)}, {in[0].dtype, dims.with(columns, dims.columns)}};
}

Rule qr_rule(Types in, const Attrs&) { return matrix_rule(in[0], {"mk", "kn"}); }

// With M = R dR^T - dQ^T Q: (dQ + Q copyltu(M)) R^-T, where copyltu copies the lower triangle to the upper one. For at
// least as many rows as columns.
Value tall_qr_gradient(Value q, Value r, Value to_q, Value to_r) {
  const Value first = matrix_product(r, matrix_transposed(upper_triangle(to_r)));
  const Value m = first - matrix_product(matrix_transposed(to_q), q);
  const Value below = lower_triangle(m, -1);
  const Value upper = matrix_transposed(below);
  const Value mirrored = upper + lower_triangle(m);
  return triangular_solve(r, to_q + matrix_product(q, mirrored), {.left = false, .lower = false, .transpose = true});
}

// A wide matrix is [X, Y] with X = Q U square and R = [U, Q^T Y].
Grads qr_vjp(const Vjp& v) {
  const Value a = v.in[0], q = v.out[0], r = v.out[1];
  const MatrixDims dims(a.shape());
  const int64_t m = dims.rows, n = dims.columns;
  if (m > n && v.attrs.get<bool>("full_matrices"))
    throw_error("qr: {} has no gradient of the complete Q, whose last columns are arbitrary; use mode reduced",
                to_string(a.type()));
  const Value to_q = v.cts[0] ? v.cts[0] : zeros_like(q), to_r = v.cts[1] ? v.cts[1] : zeros_like(r);
  if (m >= n) return {tall_qr_gradient(q, r, to_q, to_r)};
  Dims first(a.shape().size(), 0);
  first.back() = m;
  const Dims steps(first.size(), 1);
  const Value y = slice(a, first, a.shape(), steps), to_v = slice(to_r, first, to_r.shape(), steps);
  const Value u = leading_columns(r, m), to_u = leading_columns(to_r, m);
  const Value to_x = tall_qr_gradient(q, u, to_q + matrix_product(y, matrix_transposed(to_v)), to_u);
  return {concatenate({to_x, matrix_product(q, to_v)}, a.rank() - 1)};
}

Kernel qr_cpu(const KernelSpec& spec) {
  prepare_blas();
  const MatrixDims dims(spec.in[0].shape);
  const int64_t m = dims.rows, n = dims.columns, columns = q_columns(dims, spec.attrs), matrices = count(dims.batch);
  return with_real(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const* in, void* const* out) {
      if (m == 0) return;
      for_matrices(*pool, matrices, m * columns * (n + 1), [&](int64_t i, int thread) {
        const T* const a = static_cast<const T*>(in[0]) + i * m * n;
        T* const copy = scratch_of<T>(*pool, thread, 0, m * n + lapack_qr_work(m, n));
        std::copy(a, a + m * n, copy);
        lapack_qr(m, n, columns, copy, static_cast<T*>(out[0]) + i * m * columns,
                  static_cast<T*>(out[1]) + i * columns * n, copy + m * n);
      });
    };
  });
}

}  // namespace

Values lu(Value a) { return a.builder().emit(lu_op, std::span<const Value>(&a, 1)); }
Values qr(Value a, bool full_matrices) {
  return a.builder().emit(qr_op, std::span<const Value>(&a, 1), {{"full_matrices", full_matrices}});
}

constinit const Op lu_op = {.name = "lu",
                            .rule = lu_rule,
                            .type = lu_type,
                            .vjp = lu_vjp,
                            .alias = alias_lu,
                            .cpu = lu_cpu,
                            .cuda = LOCKSTEP_CUDA(lu_cuda)};
constinit const Op qr_op = {
    .name = "qr", .rule = qr_rule, .type = qr_type, .vjp = qr_vjp, .cpu = qr_cpu, .cuda = LOCKSTEP_CUDA(qr_cuda)};

}  // namespace lockstep
