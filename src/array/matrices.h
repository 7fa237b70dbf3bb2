// Checks and conversions of the operands of lockstep::linalg. `what`, the name of the function, begins every error.
#pragma once

#include <span>

#include "lane/function_ref.h"
#include "lockstep/array.h"
#include "program/builder.h"

namespace lockstep::detail {

// Matrices of f32 or f64: integers and bools become f32. Throws Error for other dtypes and for less than 2 dimensions.
Array real_matrices(const char* what, const Array& x);
// Same; throws Error unless the matrices are square.
Array square_matrices(const char* what, const Array& x);
// Vectors or matrices of f32 or f64.
Array real_array(const char* what, const Array& x);

// Converts two arrays to their common dtype.
void promote_pair(const char* what, Array& a, Array& b);

// Converts matrices a and b to a common dtype and broadcasts their leading dimensions.
void match_batches(const char* what, Array& a, Array& b);

// Functions on Values as functions on Arrays.
using ValuesFunction = FunctionRef<Values(const Values&)>;
std::vector<Array> apply_values(const char* what, std::span<const Array> args, ValuesFunction f);

}  // namespace lockstep::detail
