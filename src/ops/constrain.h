// constrain: the row behind with_sharding_constraint. Its result is its operand; its attributes state the sharding,
// which place() and propagate() follow. A Builder belongs to one thread.
#pragma once

#include "lockstep/sharding.h"
#include "program/op.h"

namespace lockstep {

// The constraint that a sharding states for a value of this rank. REQUIRES: the spec is no longer than the rank.
Annotation annotation_of(const NamedSharding& sharding, size_t rank);

// REQUIRES: one entry per dimension of x.
Value constrain(Value x, const Annotation& stated);

// The equivalent spec; unconstrained dimensions are not sharded.
PartitionSpec spec_of(const Annotation& stated);

}  // namespace lockstep
