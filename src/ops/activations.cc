#include "ops/activations.h"

#include "ops/elementwise.h"

namespace lockstep {

// The comparison is false for NaN and then selects x, so NaN propagates.
Value relu(Value x) { return select(le(x, zeros_like(x)), zeros_like(x), x); }

}  // namespace lockstep
