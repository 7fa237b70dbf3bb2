// Ops that carry programs: scan (a loop), cond (one of two), remat (compute again rather than keep) and custom_vjp.
#pragma once

#include "program/builder.h"

namespace lockstep {

// `body` maps (carry..., x..., constant...) to (carry..., y...). Operands are the first carries, the stacked xs, the
// constants; results are the last carries and the stacked ys.
Values scan(Builder&, ProgramPtr body, const Values& carry, const Values& xs, const Values& constants, int64_t length,
            bool reverse);

// One of two programs of the same signature, by a bool scalar.
Values cond(Value predicate, ProgramPtr if_true, ProgramPtr if_false, const Values& operands);

// `body` on the operands; its gradient computes the body again.
Values remat(Builder&, ProgramPtr body, const Values& operands);

// `body` on the operands. For gradients, `forward` maps the operands to (results..., residuals...) and `backward` maps
// (residuals..., cotangents..., operands...) to gradients of the first `arguments` operands.
Values custom_vjp(Builder&, ProgramPtr body, ProgramPtr forward, ProgramPtr backward, int64_t arguments,
                  const Values& operands);

// The program with only some of its outputs, [first, last).
Program select_outputs(Program, size_t first, size_t last);

}  // namespace lockstep
