// Diagonals, triangles and products of vectors and matrices, as in jax.numpy, and arrays made of their indices. Safe to
// call from any thread.
//
//   Array total = trace(kron(a, b));                 // trace(a) * trace(b)
//   Array table = fromfunction([](auto i) { return i[0] * 10 + i[1]; }, {3, 4});
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/operand.h"

namespace lockstep {

// ---- Diagonals. k > 0 is above the main diagonal.

// A matrix with the vector v on its k-th diagonal; or the diagonal of a matrix.
Array diag(const Operand& v, int64_t k = 0);
// Same, of v flattened.
Array diagflat(const Operand& v, int64_t k = 0);
// The diagonals of the matrices along two axes, as the last dimension; trace: their sums.
Array diagonal(const Operand& x, int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1);
Array trace(const Operand& x, int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1);
// x with `value` on the main diagonal of its last two dimensions.
Array fill_diagonal(const Operand& x, const Operand& value);

// ---- Matrices.

Array identity(int64_t n, DType dtype = f32, SourceLine at = SourceLine::here());
// Ones on and below the k-th diagonal.
Array tri(int64_t rows, std::optional<int64_t> columns = {}, int64_t k = 0, DType dtype = f32);
// Column j is x to the power columns - 1 - j, or j if `increasing`.
Array vander(const Operand& x, std::optional<int64_t> columns = {}, bool increasing = false);

// ---- Products.

// The blocks a[i, j] * b.
Array kron(const Operand& a, const Operand& b);
// Sums over the last dimension of both.
Array inner(const Operand& a, const Operand& b);
// The product of both, flattened.
Array vdot(const Operand& a, const Operand& b);
// The cross product of the vectors of 2 or 3 elements along an axis; of two vectors of 2: the third element alone.
Array cross(const Operand& a, const Operand& b, int64_t axis = -1);

// ---- Indices and sequences.

// For each dimension the index along it: [rank, shape...].
Array indices(const Shape& shape, DType dtype = i32, SourceLine at = SourceLine::here());
// f of the indices of all elements, one array for each dimension.
Array fromfunction(const std::function<Array(const std::vector<Array>&)>& f, const Shape& shape, DType dtype = f32,
                   SourceLine at = SourceLine::here());

struct SpacedOptions {
  bool endpoint = true;  // whether `stop` is included
  DType dtype = f32;
};
// n numbers from start to stop: evenly spaced, with evenly spaced exponents of `base`, or in a constant ratio.
Array linspace(double start, double stop, int64_t n, const SpacedOptions& options, SourceLine at = SourceLine::here());
// Between arrays, which broadcast; along a new first dimension.
Array linspace(const Operand& start, const Operand& stop, int64_t n, const SpacedOptions& options = {});
Array logspace(double start, double stop, int64_t n = 50, double base = 10, const SpacedOptions& options = {});
Array geomspace(double start, double stop, int64_t n = 50, const SpacedOptions& options = {});

}  // namespace lockstep
