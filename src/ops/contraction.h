// Lowers an einsum to a batched matrix product: which letters form the batch, the rows, the columns and the sum,
// whether the operands can be read in place, and otherwise how to copy them first. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lane/cpu/gemm.h"
#include "program/op.h"

namespace lockstep {

struct Contraction {
  GemmSpec gemm;
  bool swapped = false;  // the product's A is the second operand
  // Axis orders in which the operands (after swapping) must be copied first; absent: read in place.
  std::optional<std::vector<int64_t>> copy_a, copy_b;
  // Present if the product's axes are in another order than the result's: result axis d is product axis copy_c[d]. Then
  // `product` is its shape.
  std::optional<std::vector<int64_t>> copy_c;
  Shape product;
};

Contraction contraction(const std::string& spec, const Type& a, const Type& b);

}  // namespace lockstep
