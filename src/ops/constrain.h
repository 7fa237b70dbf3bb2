// constrain: the row behind with_sharding_constraint. Its result is its operand; it says how that lies on devices, for
// place() and propagate() to follow. A Builder belongs to one thread.
#pragma once

#include "lockstep/sharding.h"
#include "program/op.h"

namespace lockstep {

// What a sharding says of a value of this rank. REQUIRES: the spec is no longer than the rank.
Annotation annotation_of(const NamedSharding& sharding, size_t rank);

// REQUIRES: one entry per dimension of x.
Value constrain(Value x, const Annotation& said);

// The spec it amounts to; dimensions of which nothing is said are not cut.
PartitionSpec spec_of(const Annotation& said);

}  // namespace lockstep
