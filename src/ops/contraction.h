// How an einsum becomes a batched matrix product: which letters form the batch, the rows, the columns and the sum,
// whether the operands can be read where they lie, and the copies that make them so when they cannot.
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
  // Axis orders in which the operands (after swapping) must be copied first; absent: read where they lie.
  std::optional<std::vector<int64_t>> copy_a, copy_b;
  // The product comes out with its axes in another order than the result's: result axis d is product axis copy_c[d].
  // `product` is then its shape.
  std::optional<std::vector<int64_t>> copy_c;
  Shape product;
};

Contraction contraction(const std::string& spec, const Type& a, const Type& b);

}  // namespace lockstep
