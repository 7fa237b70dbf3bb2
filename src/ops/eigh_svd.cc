// The rows eigh and svd.
#include "base/check.h"
#include "lane/cpu/blas.h"
#include "lane/cpu/lapack.h"
#include "ops/cuda/kernels.h"
#include "ops/elementwise.h"
#include "ops/linalg.h"
#include "ops/linalg_cpu.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"

namespace lockstep {
namespace {

// ---- eigh

std::vector<Type> eigh_type(Types in, const Attrs&) {
  expect_operands("eigh", in, 1);
  expect_square("eigh", in[0]);
  return {{in[0].dtype, MatrixDims(in[0].shape).with(in[0].shape.back())}, in[0]};
}

Rule eigh_rule(Types in, const Attrs&) { return matrix_rule(in[0], {"p", "qn"}); }

// V (diag(dw) + F * (V^T dV)) V^T, where F[i, j] = 1 / (w[j] - w[i]), and 0 on the diagonal.
Grads eigh_vjp(const Vjp& v) {
  const Value w = v.out[0], vectors = v.out[1], turned = matrix_transposed(vectors);
  const int64_t n = w.shape().back();
  Value core = v.cts[0] ? diagonal_matrix(v.cts[0]) : Value();
  if (v.cts[1]) {
    const Value product = matrix_product(turned, v.cts[1]);
    const Value identity = identity_like(product);
    const Value columns = as_rows(w, n);
    const Value gap = identity + columns - as_columns(w, n);
    const Value rotation = (1.0 / gap - identity) * product;
    core = core ? core + rotation : rotation;
  }
  return {symmetric_gradient(matrix_product(matrix_product(vectors, core), turned))};
}

template <class T>
void turn_in_place(int64_t n, T* x) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j) std::swap(x[i * n + j], x[j * n + i]);
}

// Whether the triangle that eigh reads is finite.
template <class T>
bool lower_is_finite(int64_t n, const T* a) {
  for (int64_t i = 0; i < n; ++i)
    if (!all_finite(a + i * n, i + 1)) return false;
  return true;
}

Kernel eigh_cpu(const KernelSpec& spec) {
  prepare_blas();
  const MatrixDims dims(spec.in[0].shape);
  const int64_t n = dims.rows, size = n * n, matrices = count(dims.batch);
  return with_real(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const* in, void* const* out) {
      if (n == 0) return;
      for_matrices(*pool, matrices, 10 * size * n, [&](int64_t i, int thread) {
        const T* const a = static_cast<const T*>(in[0]) + i * size;
        T *const w = static_cast<T*>(out[0]) + i * n, *const vectors = static_cast<T*>(out[1]) + i * size;
        if (vectors != a) std::copy(a, a + size, vectors);
        if (!lower_is_finite(n, vectors) ||
            !lapack_eigh(n, vectors, w, scratch_of<T>(*pool, thread, 0, lapack_eigh_work(n)))) {
          fill_nan(w, n);
          fill_nan(vectors, size);
          return;
        }
        for (int64_t k = 0; k < n; ++k)
          if (has_wrong_sign(vectors + k * n, n, 1)) change_sign(vectors + k * n, n, 1);
        turn_in_place(n, vectors);
      });
    };
  });
}

bool alias_vectors(Types, Types, const Attrs&, size_t in, size_t out) { return in == 0 && out == 1; }

// ---- svd

struct SvdExtents {
  int64_t m, n, k, u_columns, v_rows;
  bool full, compute_uv;

  SvdExtents(const MatrixDims& dims, const Attrs& attrs)
      : m(dims.rows),
        n(dims.columns),
        k(std::min(m, n)),
        full(attrs.get<bool>("full_matrices")),
        compute_uv(attrs.get<bool>("compute_uv")) {
    u_columns = full ? m : k;
    v_rows = full ? n : k;
  }
};

std::vector<Type> svd_type(Types in, const Attrs& attrs) {
  expect_operands("svd", in, 1);
  expect_matrices("svd", in[0]);
  const MatrixDims dims(in[0].shape);
  const SvdExtents e(dims, attrs);
  const Type s{in[0].dtype, dims.with(e.k)};
  if (!e.compute_uv) return {s};
  return {{in[0].dtype, dims.with(e.m, e.u_columns)}, s, {in[0].dtype, dims.with(e.v_rows, e.n)}};
}

Rule svd_rule(Types in, const Attrs& attrs) {
  return attrs.get<bool>("compute_uv") ? matrix_rule(in[0], {"mu", "k", "vn"}) : matrix_rule(in[0], {"k"});
}

// The gradient of the singular values needs U and Vh.
ForwardResult svd_forward(const Forward& f) {
  if (f.attrs.get<bool>("compute_uv")) return {svd(f.in[0], f.attrs.get<bool>("full_matrices"), true), {}};
  const Values all = svd(f.in[0], false, true);
  return {{all[1]}, {all[0], all[2]}};
}

// F * (X - X^T), where F[i, j] = 1 / (s[j]^2 - s[i]^2), and 0 for equal singular values.
Value svd_rotation(Value x, Value s) {
  const int64_t k = s.shape().back();
  const Value columns = as_rows(s, k), rows = as_columns(s, k);
  const Value difference = columns - rows;
  const Value gap = difference * (columns + rows);
  const Value skew = x - matrix_transposed(x);
  return reciprocal_or_zero(gap) * skew;
}

// J. Townsend, "Differentiating the singular value decomposition" (2016). `to_u`, `to_s` and `to_vh` may be absent.
Value svd_gradient(Value u, Value s, Value vh, Value to_u, Value to_s, Value to_vh) {
  const Value u_turned = matrix_transposed(u), v = matrix_transposed(vh);
  const int64_t m = u.shape()[static_cast<size_t>(u.rank()) - 2], n = vh.shape().back(), k = s.shape().back();
  const auto sum = [](Value a, Value b) { return a ? a + b : b; };
  Value core = to_s ? diagonal_matrix(to_s) : Value(), rest;
  if (to_u) {
    const Value product = matrix_product(u_turned, to_u);
    core = sum(core, scale_columns(svd_rotation(product, s), s));
    if (m > k) {
      const Value outside = to_u - matrix_product(u, product);
      rest = matrix_product(scale_columns(outside, reciprocal_or_zero(s)), vh);
    }
  }
  if (to_vh) {
    const Value product = matrix_product(vh, matrix_transposed(to_vh));
    core = sum(core, scale_rows(svd_rotation(product, s), s));
    if (n > k) {
      const Value outside = to_vh - matrix_product(matrix_product(to_vh, v), vh);
      rest = sum(rest, matrix_product(u, scale_rows(outside, reciprocal_or_zero(s))));
    }
  }
  const Value inside = matrix_product(matrix_product(u, core), vh);
  return rest ? inside + rest : inside;
}

Grads svd_vjp(const Vjp& v) {
  if (!v.attrs.get<bool>("compute_uv"))
    return {svd_gradient(v.residuals[0], v.out[0], v.residuals[1], {}, v.cts[0], {})};
  const Value u = v.out[0], s = v.out[1], vh = v.out[2];
  const int64_t k = s.shape().back();
  const bool is_full = u.shape().back() != k || vh.shape()[static_cast<size_t>(vh.rank()) - 2] != k;
  if (is_full && (v.cts[0] || v.cts[2]))
    throw_error(
        "svd: {} has no gradient of the complete U and Vh, whose last vectors are arbitrary; use full_matrices = "
        "false",
        to_string(v.in[0].type()));
  const Value first_u = leading_columns(u, k), first_vh = leading_rows(vh, k);
  return {svd_gradient(first_u, s, first_vh, v.cts[0], v.cts[1], v.cts[2])};
}

template <class T>
void set_signs(const SvdExtents& e, T* u, T* vh) {
  for (int64_t c = 0; c < e.u_columns; ++c) {
    if (!has_wrong_sign(u + c, e.m, e.u_columns)) continue;
    change_sign(u + c, e.m, e.u_columns);
    if (c < e.k) change_sign(vh + c * e.n, e.n, 1);
  }
  for (int64_t r = e.k; r < e.v_rows; ++r)
    if (has_wrong_sign(vh + r * e.n, e.n, 1)) change_sign(vh + r * e.n, e.n, 1);
}

// U and Vh of a matrix without elements.
template <class T>
void set_identity(T* x, int64_t n) {
  std::fill(x, x + n * n, T{0});
  for (int64_t i = 0; i < n; ++i) x[i * n + i] = T{1};
}

Kernel svd_cpu(const KernelSpec& spec) {
  prepare_blas();
  const MatrixDims dims(spec.in[0].shape);
  const SvdExtents e(dims, spec.attrs);
  const int64_t size = e.m * e.n, u_size = e.m * e.u_columns, v_size = e.v_rows * e.n, matrices = count(dims.batch);
  return with_real(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const* in, void* const* out) {
      for_matrices(*pool, matrices, 20 * size * (e.k + 1), [&](int64_t i, int thread) {
        const T* const a = static_cast<const T*>(in[0]) + i * size;
        T* const u = e.compute_uv ? static_cast<T*>(out[0]) + i * u_size : nullptr;
        T* const s = static_cast<T*>(out[e.compute_uv ? 1 : 0]) + i * e.k;
        T* const vh = e.compute_uv ? static_cast<T*>(out[2]) + i * v_size : nullptr;
        if (e.k == 0) {
          if (u) set_identity(u, e.u_columns), set_identity(vh, e.v_rows);
          return;
        }
        T* const copy = scratch_of<T>(*pool, thread, 0, size + lapack_svd_work(e.m, e.n));
        std::copy(a, a + size, copy);
        if (!all_finite(a, size) || !lapack_svd(e.m, e.n, e.full, copy, u, s, vh, copy + size)) {
          fill_nan(s, e.k);
          if (u) fill_nan(u, u_size), fill_nan(vh, v_size);
          return;
        }
        if (u) set_signs(e, u, vh);
      });
    };
  });
}

}  // namespace

Values eigh(Value a) { return a.builder().emit(eigh_op, std::span<const Value>(&a, 1)); }
Values svd(Value a, bool full_matrices, bool compute_uv) {
  return a.builder().emit(svd_op, std::span<const Value>(&a, 1),
                          {{"full_matrices", full_matrices}, {"compute_uv", compute_uv}});
}

constinit const Op eigh_op = {.name = "eigh",
                              .rule = eigh_rule,
                              .type = eigh_type,
                              .vjp = eigh_vjp,
                              .alias = alias_vectors,
                              .cpu = eigh_cpu,
                              .cuda = LOCKSTEP_CUDA(eigh_cuda)};
constinit const Op svd_op = {.name = "svd",
                             .rule = svd_rule,
                             .type = svd_type,
                             .forward = svd_forward,
                             .vjp = svd_vjp,
                             .cpu = svd_cpu,
                             .cuda = LOCKSTEP_CUDA(svd_cuda)};

}  // namespace lockstep
