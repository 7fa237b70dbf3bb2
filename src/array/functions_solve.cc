#include "array/apply.h"
#include "array/matrices.h"
#include "array/promote.h"
#include "base/check.h"
#include "lockstep/create.h"
#include "lockstep/linalg.h"
#include "lockstep/math.h"
#include "lockstep/rearrange.h"
#include "lockstep/reduce.h"
#include "ops/elementwise.h"
#include "ops/index_ops.h"
#include "ops/linalg.h"
#include "ops/matrix_values.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"

namespace lockstep::linalg {
namespace {

using detail::apply_values;

// a[permutation] by rows.
Value permute_rows(Value x, Value permutation) {
  const int64_t batch = x.rank() - 2;
  return gather(x, permutation, batch, batch);
}

// op(a) x = b for the factors of a.
Value solve_factored(Value lu, Value permutation, Value b, bool transpose) {
  const TriangularForm low{.left = true, .lower = true, .transpose = transpose, .unit_diagonal = true};
  const TriangularForm high{.left = true, .lower = false, .transpose = transpose};
  if (!transpose) return triangular_solve(lu, triangular_solve(lu, permute_rows(b, permutation), low), high);
  const Value permuted = triangular_solve(lu, triangular_solve(lu, b, high), low);
  const int64_t batch = b.rank() - 2;
  return scatter_add(zeros_like(permuted), permutation, permuted, batch, batch);
}

// Calls f(a, b) with b as matrices, and returns a vector if b was one vector.
template <class F>
Array with_sides(const char* what, const Array& x, const Array& y, F f) {
  Array a = detail::square_matrices(what, x), b = y.rank() == 1 ? expand_dims(y, 1) : detail::real_matrices(what, y);
  if (y.rank() < 1) throw_error("{}: b is {}; it must be a vector or matrices", what, to_string(y.type()));
  if (b.shape(-2) != a.shape(-1))
    throw_error("{}: a is {} and b is {}; b must have {} rows", what, to_string(x.type()), to_string(y.type()),
                a.shape(-1));
  detail::match_batches(what, a, b);
  const Array solved = f(a, b);
  return y.rank() == 1 ? squeeze(solved, -1) : solved;
}

// The parts of a determinant: sign and logarithm of the magnitude, and their product.
struct Determinant {
  Value sign, log_magnitude, value;
};
Determinant determinant(Value a) {
  const Values parts = lockstep::lu(a);
  const Value diagonal = diagonal_of(parts[0]);
  const int64_t last = diagonal.rank() - 1;
  const Value places = iota(a.builder(), parts[1].type(), last);
  const Value exchanged = ne(parts[1], places);
  const Value swaps = reduce_sum(cast(exchanged, DType::i32), {last});
  const Value odd = bit_and(swaps, lockstep::full(a.builder(), swaps.type(), 1));
  const Value parity = 1.0 - 2.0 * cast(odd, a.dtype());
  const Value signs = reduce_prod(lockstep::sign(diagonal), {last});
  const Value magnitudes = reduce_sum(lockstep::log(lockstep::abs(diagonal)), {last});
  const Value product = reduce_prod(diagonal, {last});
  return {parity * signs, magnitudes, parity * product};
}

double epsilon_of(DType t) { return t == f64 ? 0x1p-52 : 0x1p-23; }

double cutoff(const Array& a, std::optional<double> tolerance, double factor) {
  const auto longer = static_cast<double>(std::max(a.shape(-1), a.shape(-2)));
  return tolerance ? *tolerance : factor * longer * epsilon_of(a.dtype());
}

// Which singular values count as nonzero: those above `tolerance` times the largest.
Array significant(const Array& s, double tolerance) {
  if (s.shape(-1) == 0) return zeros(s.shape(), boolean);
  return s > tolerance * max(s, -1, {.keepdims = true});
}

Array reciprocal_where(const Array& mask, const Array& s) { return where(mask, 1 / where(mask, s, 1), 0); }

}  // namespace

Array solve_triangular(const Operand& x, const Operand& y, SolveTriangularOptions options) {
  constexpr const char* what = "linalg::solve_triangular";
  if (options.trans != 0 && options.trans != 1) throw_error("{}: trans is {}; it must be 0 or 1", what, options.trans);
  return with_sides(what, x, y, [&](const Array& a, const Array& b) {
    return triangular_solve(a, b,
                            {.left_side = true,
                             .lower = options.lower,
                             .transpose_a = options.trans == 1,
                             .unit_diagonal = options.unit_diagonal});
  });
}

Array cho_solve(const CholeskyFactor& factor, const Operand& y) {
  return with_sides("linalg::cho_solve", factor.c, y, [&](const Array& a, const Array& b) {
    const Array half = triangular_solve(a, b, {.left_side = true, .lower = factor.lower, .transpose_a = !factor.lower});
    return triangular_solve(a, half, {.left_side = true, .lower = factor.lower, .transpose_a = factor.lower});
  });
}

Array solve(const Operand& x, const Operand& y) {
  return with_sides("linalg::solve", x, y, [](const Array& a, const Array& b) {
    const Array operands[] = {a, b};
    return apply_values("linalg::solve", operands, [](const Values& v) -> Values {
      const Values parts = lockstep::lu(v[0]);
      return {solve_factored(parts[0], parts[2], v[1], false)};
    })[0];
  });
}

Array lu_solve(const Lu& factors, const Operand& y, int trans) {
  constexpr const char* what = "linalg::lu_solve";
  if (trans != 0 && trans != 1) throw_error("{}: trans is {}; it must be 0 or 1", what, trans);
  return with_sides(what, factors.lu, y, [&](const Array& a, const Array& b) {
    Shape rows = a.shape();
    rows.pop_back();
    const Array operands[] = {a, broadcast_to(factors.permutation, rows), b};
    return apply_values(what, operands,
                        [&](const Values& v) -> Values { return {solve_factored(v[0], v[1], v[2], trans == 1)}; })[0];
  });
}

Array inv(const Operand& x) {
  const Array a = detail::square_matrices("linalg::inv", x);
  return apply_values("linalg::inv", std::span<const Array>(&a, 1), [](const Values& v) -> Values {
    const Values parts = lockstep::lu(v[0]);
    return {solve_factored(parts[0], parts[2], identity_like(v[0]), false)};
  })[0];
}

Array det(const Operand& x) {
  const Array a = detail::square_matrices("linalg::det", x);
  const int64_t n = a.shape(-1);
  const auto element = [&](int64_t i, int64_t j) { return at(at(a, i, -2), j, -1); };
  if (n == 1) return element(0, 0);
  const auto minor = [&](int64_t i, int64_t p, int64_t q) {
    return element(i, p) * element(i + 1, q) - element(i, q) * element(i + 1, p);
  };
  if (n == 2) return minor(0, 0, 1);
  if (n == 3) return element(0, 0) * minor(1, 1, 2) - element(0, 1) * minor(1, 0, 2) + element(0, 2) * minor(1, 0, 1);
  return apply_values("linalg::det", std::span<const Array>(&a, 1),
                      [](const Values& v) -> Values { return {determinant(v[0]).value}; })[0];
}

Slogdet slogdet(const Operand& x) {
  const Array a = detail::square_matrices("linalg::slogdet", x);
  const auto parts = apply_values("linalg::slogdet", std::span<const Array>(&a, 1), [](const Values& v) -> Values {
    const Determinant d = determinant(v[0]);
    return {d.sign, d.log_magnitude};
  });
  return {parts[0], parts[1]};
}

Lstsq lstsq(const Operand& x, const Operand& y, std::optional<double> rcond) {
  constexpr const char* what = "linalg::lstsq";
  Array a = detail::real_matrices(what, x), b = detail::real_array(what, y);
  if (a.rank() != 2 || b.rank() < 1 || b.rank() > 2 || a.shape(0) != b.shape(0))
    throw_error("{}: a is {} and b is {}; a must be one matrix, and b a vector or matrix with {} rows", what,
                to_string(x.type()), to_string(y.type()), a.shape(-2));
  detail::promote_pair(what, a, b);
  if (y.rank() == 1) b = expand_dims(b, 1);
  const Svd parts = svd(a, {.full_matrices = false});
  const Array mask = significant(parts.s, cutoff(a, rcond, 1));
  const Array projected = matmul(matrix_transpose(parts.u), b);
  const Array found = matmul(matrix_transpose(parts.vh), expand_dims(reciprocal_where(mask, parts.s), 1) * projected);
  const Array residuals = sum(square(b - matmul(a, found)), 0);
  return {y.rank() == 1 ? squeeze(found, 1) : found, residuals, sum(astype(mask, i32)), parts.s};
}

Array pinv(const Operand& x, std::optional<double> rtol) {
  const Array a = detail::real_matrices("linalg::pinv", x);
  const Svd parts = svd(a, {.full_matrices = false});
  const Array inverse = reciprocal_where(significant(parts.s, cutoff(a, rtol, 10)), parts.s);
  return matmul(matrix_transpose(parts.vh), expand_dims(inverse, -1) * matrix_transpose(parts.u));
}

Array matrix_rank(const Operand& x, std::optional<double> rtol) {
  if (x.rank() < 2) return astype(any(x != 0), i32);
  const Array a = detail::real_matrices("linalg::matrix_rank", x);
  return sum(astype(significant(svdvals(a), cutoff(a, rtol, 1)), i32), -1);
}

}  // namespace lockstep::linalg
