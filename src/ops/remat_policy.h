// Policies of remat: which values of its body the forward computation stores, so that the gradient does not compute them
// again. A policy is a text:
//
//   everything_saveable                  all values that the gradient needs
//   dots_saveable                        products, convolutions and attention
//   dots_with_no_batch_dims_saveable     matrix products without batch dimensions
//   names:a,b                            values that checkpoint_name() called a or b
//   names_but:a,b                        all values that it called otherwise
//   anything_but:a,b                     all values but those
//
// Pure functions, safe to call from any thread.
#pragma once

#include "program/op.h"

namespace lockstep {

// Throws Error unless the text is a policy.
void check_remat_policy(std::string_view policy);

// The `forward` column of remat: also returns the stored values.
ForwardResult remat_forward(const Forward& f);
// The gradients of the wanted operands under the policy of the attributes. `args`: the operands, then the cotangents.
Values remat_gradients(const Vjp& v, const Values& args);

// Returns x, which policies call `name`.
Value checkpoint_name(Value x, const std::string& name);

}  // namespace lockstep
