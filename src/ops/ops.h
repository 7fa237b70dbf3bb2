// The rows by name (`add_op`, `einsum_op`, ...), as listed in ops.def. Immutable, safe from any thread.
#pragma once

#include <span>

#include "program/op.h"

namespace lockstep {

#define OP(name) extern const Op name##_op;
#include "ops/ops.def"
#undef OP

// Every row.
std::span<const Op* const> all_ops();

// Batching of pointwise ops: operands that are not batched are broadcast along the batch axis.
Batched batch_pointwise(const Batch&);

// `x` with a leading batch axis: itself when it is batched, else broadcast.
Value with_batch(const Batch&, size_t operand);

}  // namespace lockstep
