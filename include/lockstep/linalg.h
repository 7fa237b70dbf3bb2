// Products of vectors, matrices and batches of them. Element types meet as in arithmetic. Safe from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/array.h"

namespace lockstep {

// The sum over the last dimension of a and the last but one of b (the only one of a vector); the other dimensions of a,
// then those of b, remain. A scalar multiplies.
Array dot(const Array& a, const Array& b);
// As dot for vectors and matrices; leading dimensions of higher ranks are a batch and broadcast.
Array matmul(const Array& a, const Array& b);

// "bik,kj->bij": letters name dimensions, equal letters run in step, letters absent from the result are summed over.
// Without "->" the result has the letters that occur once, in alphabetical order. A letter repeated in one operand
// takes the diagonal. "..." stands for the dimensions that a term does not name, which broadcast: "...ij,...jk->...ik".
// Operands are contracted from left to right. Spaces do not count.
Array einsum(std::string_view spec, const Array& a);
Array einsum(std::string_view spec, const Array& a, const Array& b);
Array einsum(std::string_view spec, const std::vector<Array>& operands);

// All products of an element of a and one of b, both flattened.
Array outer(const Array& a, const Array& b);
// The sum over the last `axes` dimensions of a and the first of b, or over pairs of dimensions.
Array tensordot(const Array& a, const Array& b, int64_t axes = 2);
Array tensordot(const Array& a, const Array& b, const std::vector<int64_t>& axes_a, const std::vector<int64_t>& axes_b);

}  // namespace lockstep
