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

namespace lockstep {

// Sums over the last dimension of a and the second-to-last of b (the only one, if b is a vector). The result
// has the remaining dimensions of a, then those of b. A scalar operand multiplies.
Array dot(const Array& a, const Array& b);
// Same as dot for vectors and matrices. Leading dimensions of higher ranks are batch dimensions and
// broadcast.
Array matmul(const Array& a, const Array& b);

// Letters name dimensions: "bik,kj->bij". Letters missing from the result are summed over. Without "->", the
// result has the letters that occur once, in alphabetical order. A letter repeated in one operand takes the
// diagonal. "..." stands for all dimensions a term does not name, which broadcast: "...ij,...jk->...ik".
// Operands are contracted from left to right. Spaces are ignored. Throws Error for a malformed spec and for
// extents that do not agree.
Array einsum(std::string_view spec, const Array& a);
Array einsum(std::string_view spec, const Array& a, const Array& b);
Array einsum(std::string_view spec, const std::vector<Array>& operands);

// The outer product of a and b, both flattened.
Array outer(const Array& a, const Array& b);
// Sums over the last `axes` dimensions of a and the first of b, or over the given pairs of dimensions.
Array tensordot(const Array& a, const Array& b, int64_t axes = 2);
Array tensordot(const Array& a, const Array& b, const std::vector<int64_t>& axes_a, const std::vector<int64_t>& axes_b);

// Linear algebra: jax.numpy.linalg, jax.scipy.linalg and jax.lax.linalg. Matrices are the last two dimensions, the
// leading ones are a batch. Elements are f32 or f64; integers become f32, and smaller floats throw Error, as do matrices
// that do not fit. All functions have gradients of every order unless stated otherwise.
namespace linalg {

struct CholeskyOptions {
  bool upper = false;            // U with A = U^T U instead of L with A = L L^T
  bool symmetrize_input = true;  // false: only the lower triangle is read
};
// NaN if the matrix is not positive definite.
Array cholesky(const Array& a, CholeskyOptions = {});

struct TriangularSolveOptions {
  bool left_side = false;  // op(a) x = b instead of x op(a) = b
  bool lower = false;      // the triangle of `a` that is read
  bool transpose_a = false;
  bool unit_diagonal = false;
};
// jax.lax.linalg.triangular_solve: leading dimensions must be equal.
Array triangular_solve(const Array& a, const Array& b, TriangularSolveOptions = {});

struct SolveTriangularOptions {
  int trans = 0;  // 1: a^T x = b
  bool lower = false;
  bool unit_diagonal = false;
};
// a x = b for a triangular a and a b that is one vector, or matrices. Leading dimensions broadcast here and below.
Array solve_triangular(const Array& a, const Array& b, SolveTriangularOptions = {});

// a x = b, by LU with partial pivoting. b is one vector, or matrices.
Array solve(const Array& a, const Array& b);
Array inv(const Array& a);
Array det(const Array& a);

struct Slogdet {
  Array sign, logabsdet;
};
Slogdet slogdet(const Array& a);

// L below the diagonal (its own is 1) and U: a[permutation] = L U. Row i was exchanged with row pivots[i]; both are i32.
struct Lu {
  Array lu, pivots, permutation;
};
Lu lu(const Array& a);
Lu lu_factor(const Array& a);
// a x = b, or a^T x = b if trans is 1, for the factors of a.
Array lu_solve(const Lu& lu, const Array& b, int trans = 0);

struct CholeskyFactor {
  Array c;
  bool lower = false;
};
CholeskyFactor cho_factor(const Array& a, bool lower = false);
Array cho_solve(const CholeskyFactor& factor, const Array& b);

struct Qr {
  Array q, r;
};
// mode: "reduced", "complete" (no gradient if a has more rows than columns), or "r" (q is an empty handle).
Qr qr(const Array& a, std::string_view mode = "reduced");

struct EighOptions {
  char uplo = 'L';  // the triangle that is read, without symmetrize_input
  bool symmetrize_input = true;
};
// Eigenvalues in ascending order, eigenvectors as columns. Among the elements of an eigenvector near the largest
// magnitude the first is positive. NaN if an element is not finite.
struct Eigh {
  Array eigenvalues, eigenvectors;
};
Eigh eigh(const Array& a, EighOptions = {});
Array eigvalsh(const Array& a, EighOptions = {});

struct SvdOptions {
  bool full_matrices = true;  // no gradient of u and vh if they have vectors without singular values
};
// a = u diag(s) vh, s descending. Signs are chosen as in eigh, by the columns of u.
struct Svd {
  Array u, s, vh;
};
Svd svd(const Array& a, SvdOptions = {});
Array svdvals(const Array& a);

// The x of least norm that minimizes |a x - b|. Singular values up to rcond times the largest count as zero; default:
// epsilon times the larger extent. a is one matrix, b a vector or a matrix.
struct Lstsq {
  Array x, residuals, rank, singular_values;
};
Lstsq lstsq(const Array& a, const Array& b, std::optional<double> rcond = {});
// rtol: as rcond, default 10 times that.
Array pinv(const Array& a, std::optional<double> rtol = {});
Array matrix_rank(const Array& a, std::optional<double> rtol = {});

Array matrix_power(const Array& a, int64_t n);
// e^a, by a Pade approximant of order 13 with scaling and squaring. NaN if it takes more than max_squarings.
Array expm(const Array& a, int max_squarings = 16);

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
Array norm(const Array& x, std::optional<NormOrder> ord = {}, NormOptions = {});
// norm(x, p) norm(inv(x), p); default: the ratio of the extreme singular values.
Array cond(const Array& x, std::optional<NormOrder> p = {});

// The product of matrices, in the order with the fewest multiplications. The first and the last may be vectors.
Array multi_dot(const std::vector<Array>& arrays);
Array matrix_transpose(const Array& x);
// The sum of products along one axis.
Array vecdot(const Array& a, const Array& b, int64_t axis = -1);
Array outer(const Array& a, const Array& b);  // of two vectors
// The inverse of a as a map between its first `ind` dimensions and the others.
Array tensorinv(const Array& a, int64_t ind = 2);
Array tensorsolve(const Array& a, const Array& b);

// The matrices along the diagonal of a matrix of zeros. Vectors are matrices of one row.
Array block_diag(const std::vector<Array>& arrays);
// The matrix with constant diagonals whose first column is c and whose first row is r (without its first element).
Array toeplitz(const Array& c, const std::optional<Array>& r = {});

}  // namespace linalg

}  // namespace lockstep
