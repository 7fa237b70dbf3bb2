// Functions on Values that factor matrices and solve triangular systems. Matrices are the last two dimensions; the
// leading ones are a batch. f32 and f64 only; no promotion, no broadcasting. Each throws Error if its operands do not
// fit. A Builder belongs to one thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// L with A = L L^T, zero above the diagonal. Reads the lower triangle only. NaN if A is not positive definite.
Value cholesky(Value a);

struct TriangularForm {
  bool left = true;  // op(a) x = b, else x op(a) = b; op(a) is a or its transpose
  bool lower = true, transpose = false, unit_diagonal = false;
};
// Reads only one triangle of a, and not its diagonal if it is a unit diagonal. Zeros on the diagonal give infinities.
Value triangular_solve(Value a, Value b, const TriangularForm& form);

// {lu, pivots, permutation}: L below the diagonal (its own diagonal is 1) and U, where a[permutation] = L U. Row i was
// exchanged with row pivots[i]; both are i32.
Values lu(Value a);

// {Q, R}: orthonormal columns and an upper triangle, min(m, n) columns, or m if `full_matrices`.
Values qr(Value a, bool full_matrices);

// {w, v}: eigenvalues in ascending order and eigenvectors as columns. Reads the lower triangle only. Among the elements
// of an eigenvector near the largest magnitude the first one is positive. NaN if an element is not finite.
Values eigh(Value a);

// {U, S, Vh} with A = U diag(S) Vh, S descending; with compute_uv = false only {S}. The sign is chosen as in eigh, by
// the columns of U. NaN if an element is not finite.
Values svd(Value a, bool full_matrices, bool compute_uv);

}  // namespace lockstep
