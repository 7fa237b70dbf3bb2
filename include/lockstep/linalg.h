// Products of vectors, matrices and batches of them. Operands are promoted as in arithmetic. Safe to call
// from any thread.
//
//   Array y = matmul(x, w);
//   Array attention = einsum("bqhd,bkhd->bhqk", q, k);
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/array.h"

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

}  // namespace lockstep
