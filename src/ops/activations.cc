#include "ops/activations.h"

#include "ops/elementwise.h"

namespace lockstep {

// The comparison is false for NaN and then selects x, so NaN propagates.
Value relu(Value x) { return select(le(x, zeros_like(x)), zeros_like(x), x); }

Value gelu(Value x) {
  // In f16 x * x would be infinite from 256 on, and the gradient 0 * inf.
  if (x.dtype() == DType::f16) return cast(gelu(cast(x, DType::f32)), DType::f16);
  constexpr double kRootTwoOverPi = 0.79788456080286535588;
  return x * (0.5 * (1.0 + tanh(kRootTwoOverPi * (x + 0.044715 * (x * x * x)))));
}

Value gelu_exact(Value x) {
  constexpr double kRootHalf = 0.70710678118654752440;
  return x * (0.5 * (1.0 + erf(kRootHalf * x)));
}

Value silu(Value x) { return x * logistic(x); }

}  // namespace lockstep
