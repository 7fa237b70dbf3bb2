// Ops that contain programs: scan and while_loop (loops), cond (a choice), remat (recompute instead of store), custom_vjp
// and custom_jvp. A Builder belongs to one thread.
#pragma once

#include <functional>
#include <stdexcept>
#include <vector>

#include "lane/buffer.h"
#include "program/builder.h"
#include "program/op.h"

namespace lockstep {

// `body` maps (carry..., x..., constant...) to (carry..., y...). Operands are the initial carries, the stacked xs and
// the constants; results are the final carries and the stacked ys.
Values scan(Builder&, ProgramPtr body, const Values& carry, const Values& xs, const Values& constants, int64_t length,
            bool reverse);

// The same with `unroll` iterations in each round of a shorter loop, and the remaining iterations after it. Without a
// loop if `unroll` is at least `length`. REQUIRES: unroll > 0.
Values unrolled_scan(Builder&, ProgramPtr body, const Values& carry, const Values& xs, const Values& constants,
                     int64_t length, bool reverse, int64_t unroll);

// Repeats `body`, which maps (constants..., carries...) to carries, while `cond`, which maps (constants...,
// carries...) to a bool scalar, returns true. Returns the last carries.
Values while_loop(Builder&, ProgramPtr cond, ProgramPtr body, const Values& cond_constants,
                  const Values& body_constants, const Values& carries);

// Runs one of two programs with the same signature, selected by a bool scalar.
Values cond(Value predicate, ProgramPtr if_true, ProgramPtr if_false, const Values& operands);

// Runs one of several programs with the same signature, selected by an i32 scalar, which is clamped to their range.
Values switch_case(Value index, const std::vector<ProgramPtr>& branches, const Values& operands);

// The programs of a cond by position: {if_false, if_true}, or branch0, branch1, ...
std::vector<ProgramPtr> branches_of(const Attrs&);

// Runs all of several programs with the same signature and selects results by `which`: a bool or i32 scalar, or one
// for each element of the results' first dimension.
Values choose_among(Value which, const std::vector<ProgramPtr>& branches, const Values& operands);

// Thrown by the `vjp` column of an equation that has derivatives in forward mode only. Passes that need a gradient make
// an Error of it.
class ForwardModeOnly : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The position of the branch that an index selects.
size_t branch_at(int32_t index, size_t branches);

// Runs `body` on the operands; the gradient recomputes the body. `policy` says which of its values are stored instead
// (ops/remat_policy.h); empty: none.
Values remat(Builder&, ProgramPtr body, const Values& operands, const std::string& policy = "");

// Runs `body` on the operands. For gradients, `forward` maps the operands to (results..., residuals...) and `backward`
// maps (residuals..., cotangents..., operands...) to gradients of the first `arguments` operands.
Values custom_vjp(Builder&, ProgramPtr body, ProgramPtr forward, ProgramPtr backward, int64_t arguments,
                  const Values& operands);

// Runs `body` on the operands. `rule` maps (operands..., tangents of the floating ones among the first `arguments`
// operands...) to (results..., tangents of the floating results...); the transpose of its tangents is the gradient.
Values custom_jvp(Builder&, ProgramPtr body, ProgramPtr rule, int64_t arguments, const Values& operands);

// How the loop of a scan allocates and copies memory of its lane. Slices that are not aligned to `alignment` bytes are
// copied before a kernel reads them.
struct ScanMemory {
  std::function<BufferPtr(int64_t bytes)> allocate;
  std::function<void(void* to, const void* from, int64_t bytes)> copy;
  int64_t alignment = 1;
};
Kernel scan_kernel(const KernelSpec&, ScanMemory);

// Programs of a while_loop: the condition of its operands; and a round, which maps (carries..., constants...) to the
// next carries and the condition of these.
Program while_condition(const Attrs&);
Program while_step(const Attrs&);

// The program with only some of its outputs, [first, last).
Program select_outputs(Program, size_t first, size_t last);

}  // namespace lockstep
