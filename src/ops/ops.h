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

// Batching as the op's rule says: the batch is a new leading dimension, or is merged into the first one for rows of
// fixed rank. Operands that have the batch's factor in the rule and are not batched are broadcast. REQUIRES: the rule
// lets the batch be sharded, and has it in all results and all batched operands.
Batched batch_by_rule(const Batch&);

// An operand with a leading batch axis: itself when it is batched, else broadcast.
Value with_batch(const Batch&, size_t operand);

}  // namespace lockstep
