// The rows cholesky and triangular_solve.
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

void expect_matrices(std::string_view op, const Type& a) {
  if (a.dtype != DType::f32 && a.dtype != DType::f64)
    throw_error("{}: the operand is {}; factorizations need f32 or f64: use astype(x, f32)", op, to_string(a));
  if (a.rank() < 2)
    throw_error("{}: the operand is {}; it must have at least 2 dimensions, the rows and columns of matrices", op,
                to_string(a));
}

void expect_square(std::string_view op, const Type& a) {
  expect_matrices(op, a);
  const MatrixDims dims(a.shape);
  if (dims.rows != dims.columns)
    throw_error("{}: the operand is {}, with matrices of {} x {}; they must be square", op, to_string(a), dims.rows,
                dims.columns);
}

Rule matrix_rule(const Type& a, std::initializer_list<std::string_view> results) {
  Factors factors;
  const std::string batch = factors.next(a.rank() - 2);
  // Capital letters, which a batch does not reach.
  const auto term = [&](std::string_view letters) {
    std::string out = batch;
    for (char c : letters) out += static_cast<char>(c - 'a' + 'A');
    return out;
  };
  Rule rule{{term("mn")}, {}, term("mn").substr(batch.size())};
  for (const std::string_view result : results) {
    rule.out.push_back(term(result));
    for (char c : rule.out.back().substr(batch.size()))
      if (rule.unsharded.find(c) == std::string::npos) rule.unsharded += c;
  }
  return rule;
}

namespace {

std::vector<Type> cholesky_type(Types in, const Attrs&) {
  expect_operands("cholesky", in, 1);
  expect_square("cholesky", in[0]);
  return {in[0]};
}

Rule cholesky_rule(Types in, const Attrs&) { return matrix_rule(in[0], {"mn"}); }

// With P = L^T dL, its lower triangle and half of its diagonal: L^-T P L^-1.
Grads cholesky_vjp(const Vjp& v) {
  const Value l = v.y();
  const Value product = matrix_product(matrix_transposed(l), v.ct());
  const Value below = lower_triangle(product, -1);
  const Value half = 0.5 * diagonal_matrix(diagonal_of(product));
  const Value left = triangular_solve(l, below + half, {.left = true, .lower = true, .transpose = true});
  return {symmetric_gradient(triangular_solve(l, left, {.left = false, .lower = true}))};
}

Kernel cholesky_cpu(const KernelSpec& spec) {
  prepare_blas();
  const MatrixDims dims(spec.in[0].shape);
  const int64_t n = dims.rows, size = n * n, matrices = count(dims.batch);
  return with_real(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const* in, void* const* out) {
      if (n == 0) return;
      for_matrices(*pool, matrices, size * n, [&](int64_t i, int) {
        const T* const a = static_cast<const T*>(in[0]) + i * size;
        T* const l = static_cast<T*>(out[0]) + i * size;
        if (l != a) std::copy(a, a + size, l);
        // Not every LAPACK reports NaN, which reaches the last element of the diagonal.
        const bool positive = lapack_cholesky(n, l) && !std::isnan(l[size - 1]);
        for (int64_t r = 0; r < n; ++r) {
          if (!positive) fill_nan(l + r * n, r + 1);
          std::fill(l + r * n + r + 1, l + (r + 1) * n, T{0});
        }
      });
    };
  });
}

bool alias_first(Types, Types, const Attrs&, size_t in, size_t out) { return in == 0 && out == 0; }

// ---- triangular_solve

TriangularForm form_of(const Attrs& attrs) {
  return {attrs.get<bool>("left"), attrs.get<bool>("lower"), attrs.get<bool>("transpose"),
          attrs.get<bool>("unit_diagonal")};
}

std::vector<Type> triangular_solve_type(Types in, const Attrs& attrs) {
  expect_operands("triangular_solve", in, 2);
  expect_square("triangular_solve", in[0]);
  expect_matrices("triangular_solve", in[1]);
  expect_same_dtype("triangular_solve", in[0], in[1]);
  const MatrixDims a(in[0].shape), b(in[1].shape);
  if (a.batch != b.batch)
    throw_error("triangular_solve: a is {} and b is {}; their leading dimensions must be equal: broadcast them",
                to_string(in[0]), to_string(in[1]));
  const bool left = attrs.get<bool>("left");
  if ((left ? b.rows : b.columns) != a.rows)
    throw_error("triangular_solve: a is {} and b is {}; b must have {} {}", to_string(in[0]), to_string(in[1]), a.rows,
                left ? "rows" : "columns");
  return {in[1]};
}

Rule triangular_solve_rule(Types in, const Attrs& attrs) {
  Factors factors;
  const std::string batch = factors.next(in[0].rank() - 2), a = factors.next(2), other = factors.next(1);
  const std::string b = attrs.get<bool>("left") ? a.substr(0, 1) + other : other + a.substr(0, 1);
  return {{batch + a, batch + b}, {batch + b}, a};
}

Grads triangular_solve_vjp(const Vjp& v) {
  const TriangularForm form = form_of(v.attrs);
  const Value a = v.in[0], x = v.y();
  TriangularForm other = form;
  other.transpose = !form.transpose;
  const Value to_b = triangular_solve(a, v.ct(), other);
  if (!v.wanted[0]) return {{}, to_b};
  const Value x_turned = matrix_transposed(x);
  // The gradient with respect to op(a).
  const Value to_op = -(form.left ? matrix_product(to_b, x_turned) : matrix_product(x_turned, to_b));
  const Value to_a = form.transpose ? matrix_transposed(to_op) : to_op;
  const int64_t skip = form.unit_diagonal ? 1 : 0;
  return {form.lower ? lower_triangle(to_a, -skip) : upper_triangle(to_a, skip), v.wanted[1] ? to_b : Value()};
}

// Right-hand sides that share a are more sides of one system: a is not copied.
Batched triangular_solve_batch(const Batch& b) {
  if (b.batched[0]) return batch_by_rule(b);
  const TriangularForm form = form_of(b.attrs);
  const int64_t rank = b.in[1].rank();
  const Dims order = move_dim(rank, 0, form.left ? rank - 2 : rank - 3);
  const Value moved = transpose(b.in[1], order);
  const Shape apart = moved.shape();
  Shape together = apart;
  const auto sides = together.end() - (form.left ? 2 : 3);
  *(sides + 1) *= *sides;
  together.erase(sides);
  const Value solved = triangular_solve(b.in[0], reshape(moved, together), form);
  return transpose(reshape(solved, apart), inverse(order));
}

// Right-hand sides that one task solves for. The tasks depend on the shape only.
constexpr int64_t kSides = 128;

Kernel triangular_solve_cpu(const KernelSpec& spec) {
  prepare_blas();
  const TriangularForm form = form_of(spec.attrs);
  const TriangularSystem system{form.left, form.lower, form.transpose, form.unit_diagonal};
  const MatrixDims dims(spec.in[1].shape);
  const int64_t rows = dims.rows, columns = dims.columns, matrices = count(dims.batch);
  const int64_t n = form.left ? rows : columns, sides = form.left ? columns : rows;
  const int64_t shares = (sides + kSides - 1) / kSides;
  return with_real(spec.in[0].dtype, [&]<class T>() -> Kernel {
    return [=, pool = &spec.pool](const void* const* in, void* const* out) {
      if (n == 0 || sides == 0) return;
      for_matrices(*pool, matrices * shares, n * n * std::min(sides, kSides), [&](int64_t task, int) {
        const int64_t i = task / shares, first = task % shares * kSides, mine = std::min(kSides, sides - first);
        const int64_t m = form.left ? n : mine, wide = form.left ? mine : n;
        const int64_t begin = i * rows * columns + (form.left ? first : first * columns);
        const T* const b = static_cast<const T*>(in[1]) + begin;
        T* const x = static_cast<T*>(out[0]) + begin;
        if (x != b)
          for (int64_t r = 0; r < m; ++r) std::copy(b + r * columns, b + r * columns + wide, x + r * columns);
        blas_triangular_solve(system, m, wide, static_cast<const T*>(in[0]) + i * n * n, n, x, columns);
      });
    };
  });
}

bool alias_second(Types, Types, const Attrs&, size_t in, size_t) { return in == 1; }

}  // namespace

Value cholesky(Value a) { return emit(cholesky_op, {a}); }
Value triangular_solve(Value a, Value b, const TriangularForm& form) {
  return emit(triangular_solve_op, {a, b},
              {{"left", form.left},
               {"lower", form.lower},
               {"transpose", form.transpose},
               {"unit_diagonal", form.unit_diagonal}});
}

constinit const Op cholesky_op = {.name = "cholesky",
                                  .rule = cholesky_rule,
                                  .type = cholesky_type,
                                  .vjp = cholesky_vjp,
                                  .alias = alias_first,
                                  .cpu = cholesky_cpu,
                                  .cuda = LOCKSTEP_CUDA(cholesky_cuda)};
constinit const Op triangular_solve_op = {.name = "triangular_solve",
                                          .rule = triangular_solve_rule,
                                          .type = triangular_solve_type,
                                          .vjp = triangular_solve_vjp,
                                          .batch = triangular_solve_batch,
                                          .alias = alias_second,
                                          .cpu = triangular_solve_cpu,
                                          .cuda = LOCKSTEP_CUDA(triangular_solve_cuda)};

}  // namespace lockstep
