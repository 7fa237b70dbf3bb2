// Products of vectors, matrices and batches of them, and linear algebra. Operands are promoted as in arithmetic. Safe to
// call from any thread.
//
//   Array y = matmul(x, w);
//   Array attention = einsum("bqhd,bkhd->bhqk", q, k);
#pragma once

#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/axes.h"
#include "lockstep/operand.h"

namespace lockstep {

// Sums over the last dimension of a and the second-to-last of b (the only one, if b is a vector). The result
// has the remaining dimensions of a, then those of b. A scalar operand multiplies.
Array dot(const Operand& a, const Operand& b);
// Same as dot for vectors and matrices. Leading dimensions of higher ranks are batch dimensions and
// broadcast.
Array matmul(const Operand& a, const Operand& b);

// Letters name dimensions: "bik,kj->bij". Letters missing from the result are summed over. Without "->", the
// result has the letters that occur once, in alphabetical order. A letter repeated in one operand takes the
// diagonal. "..." stands for all dimensions a term does not name, which broadcast: "...ij,...jk->...ik".
// Operands are contracted from left to right. Spaces are ignored. Throws Error for a malformed spec and for
// extents that do not agree.
Array einsum(std::string_view spec, const Operand& a);
Array einsum(std::string_view spec, const Operand& a, const Operand& b);
Array einsum(std::string_view spec, const Operands& operands);

// The outer product of a and b, both flattened.
Array outer(const Operand& a, const Operand& b);
// Sums over the last `axes` dimensions of a and the first of b, or over the given pairs of dimensions.
Array tensordot(const Operand& a, const Operand& b, int64_t axes = 2);
Array tensordot(const Operand& a, const Operand& b, const std::vector<int64_t>& axes_a,
                const std::vector<int64_t>& axes_b);

// Linear algebra: jax.numpy.linalg, jax.scipy.linalg and jax.lax.linalg. Matrices are the last two dimensions, the
// leading ones are a batch. Elements are f32 or f64; integers become f32, and smaller floats throw Error, as do matrices
// that do not fit. All functions have gradients of every order unless stated otherwise.
namespace linalg {

struct CholeskyOptions {
  bool upper = false;            // U with A = U^T U instead of L with A = L L^T
  bool symmetrize_input = true;  // false: only the lower triangle is read
};
// NaN if the matrix is not positive definite.
Array cholesky(const Operand& a, CholeskyOptions = {});

struct TriangularSolveOptions {
  bool left_side = false;  // op(a) x = b instead of x op(a) = b
  bool lower = false;      // the triangle of `a` that is read
  bool transpose_a = false;
  bool unit_diagonal = false;
};
// jax.lax.linalg.triangular_solve: leading dimensions must be equal.
Array triangular_solve(const Operand& a, const Operand& b, TriangularSolveOptions = {});

struct SolveTriangularOptions {
  int trans = 0;  // 1: a^T x = b
  bool lower = false;
  bool unit_diagonal = false;
};
// a x = b for a triangular a and a b that is one vector, or matrices. Leading dimensions broadcast here and below.
Array solve_triangular(const Operand& a, const Operand& b, SolveTriangularOptions = {});

// a x = b, by LU with partial pivoting. b is one vector, or matrices.
Array solve(const Operand& a, const Operand& b);
Array inv(const Operand& a);
Array det(const Operand& a);

struct Slogdet {
  Array sign, logabsdet;
};
Slogdet slogdet(const Operand& a);

// L below the diagonal (its own is 1) and U: a[permutation] = L U. Row i was exchanged with row pivots[i]; both are i32.
struct Lu {
  Array lu, pivots, permutation;
};
Lu lu(const Operand& a);
Lu lu_factor(const Operand& a);
// a x = b, or a^T x = b if trans is 1, for the factors of a.
Array lu_solve(const Lu& lu, const Operand& b, int trans = 0);

struct CholeskyFactor {
  Array c;
  bool lower = false;
};
CholeskyFactor cho_factor(const Operand& a, bool lower = false);
Array cho_solve(const CholeskyFactor& factor, const Operand& b);

struct Qr {
  Array q, r;
};
// mode: "reduced", "complete" (no gradient if a has more rows than columns), or "r" (q is an empty handle).
Qr qr(const Operand& a, std::string_view mode = "reduced");

struct EighOptions {
  char uplo = 'L';  // the triangle that is read, without symmetrize_input
  bool symmetrize_input = true;
};
// Eigenvalues in ascending order, eigenvectors as columns. Among the elements of an eigenvector near the largest
// magnitude the first is positive. NaN if an element is not finite.
struct Eigh {
  Array eigenvalues, eigenvectors;
};
Eigh eigh(const Operand& a, EighOptions = {});
Array eigvalsh(const Operand& a, EighOptions = {});

struct SvdOptions {
  bool full_matrices = true;  // no gradient of u and vh if they have vectors without singular values
};
// a = u diag(s) vh, s descending. Signs are chosen as in eigh, by the columns of u.
struct Svd {
  Array u, s, vh;
};
Svd svd(const Operand& a, SvdOptions = {});
Array svdvals(const Operand& a);

// The x of least norm that minimizes |a x - b|. Singular values up to rcond times the largest count as zero; default:
// epsilon times the larger extent. a is one matrix, b a vector or a matrix.
struct Lstsq {
  Array x, residuals, rank, singular_values;
};
Lstsq lstsq(const Operand& a, const Operand& b, std::optional<double> rcond = {});
// rtol: as rcond, default 10 times that.
Array pinv(const Operand& a, std::optional<double> rtol = {});
Array matrix_rank(const Operand& a, std::optional<double> rtol = {});

Array matrix_power(const Operand& a, int64_t n);
// e^a, by a Pade approximant of order 13 with scaling and squaring. NaN if it takes more than max_squarings.
Array expm(const Operand& a, int max_squarings = 16);

// The order of a norm: a number, infinity, "fro" or "nuc".
class NormOrder {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> NormOrder(T order)  // NOLINT: numbers are orders
      : number_(static_cast<double>(order)) {}
  NormOrder(const char* name) : name_(name) {}  // NOLINT

  double number() const { return number_; }
  std::string_view name() const { return name_; }

 private:
  double number_ = 0;
  std::string_view name_ = {};
};
struct NormOptions {
  std::optional<Axes> axis = {};  // one: vectors; two: matrices; default: all elements, or the matrix or vector x is
  bool keepdims = false;
};
// numpy.linalg.norm.
Array norm(const Operand& x, std::optional<NormOrder> ord = {}, NormOptions = {});
// norm(x, p) norm(inv(x), p); default: the ratio of the extreme singular values.
Array cond(const Operand& x, std::optional<NormOrder> p = {});

// The product of matrices, in the order with the fewest multiplications. The first and the last may be vectors.
Array multi_dot(const Operands& arrays);
Array matrix_transpose(const Operand& x);
// The sum of products along one axis.
Array vecdot(const Operand& a, const Operand& b, int64_t axis = -1);
Array outer(const Operand& a, const Operand& b);  // of two vectors
// The inverse of a as a map between its first `ind` dimensions and the others.
Array tensorinv(const Operand& a, int64_t ind = 2);
Array tensorsolve(const Operand& a, const Operand& b);

// The matrices along the diagonal of a matrix of zeros. Vectors are matrices of one row.
Array block_diag(const Operands& arrays);
// The matrix with constant diagonals whose first column is c and whose first row is r (without its first element).
Array toeplitz(const Operand& c, const std::optional<Array>& r = {});

}  // namespace linalg

}  // namespace lockstep
