// Functions on Values: the loss of a classification and its gradient. Strict: no promotion. A Builder belongs to one
// thread.
#pragma once

#include "program/builder.h"

namespace lockstep {

// The loss -log softmax(logits)[label] of each row, and lse = log(sum(exp(logits))), both [...], for logits [..., v] of
// any floating type and integer labels [...]. f64 for f64, else f32, in which everything is computed. With smoothing s,
//   loss = lse - (1 - s) logits[label] - s mean(logits)
// NaN for a label outside [0, v). Logits may be -inf. 16-bit logits are converted where they are read, so a cast to f32
// of such an array is not computed.
Values cross_entropy(Value logits, Value labels, double smoothing = 0);

// The gradient of sum(loss * dloss) with respect to the logits, in their type: (softmax(logits) - target) * dloss,
// where the target is s / v, plus 1 - s at the label, and `lse` and `dloss` have the type of the loss. 0 in rows where
// dloss is 0, whatever the logits are, and in rows whose label is out of range.
Value cross_entropy_grad(Value logits, Value labels, Value lse, Value dloss, double smoothing = 0);

}  // namespace lockstep
