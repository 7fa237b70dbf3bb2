// Ops that contain programs: scan (a loop), cond (a branch), remat (recompute instead of store) and custom_vjp.
// A Builder belongs to one thread.
#pragma once

#include <functional>

#include "lane/buffer.h"
#include "program/builder.h"
#include "program/op.h"

namespace lockstep {

// `body` maps (carry..., x..., constant...) to (carry..., y...). Operands are the initial carries, the stacked xs and
// the constants; results are the final carries and the stacked ys.
Values scan(Builder&, ProgramPtr body, const Values& carry, const Values& xs, const Values& constants, int64_t length,
            bool reverse);

// Runs one of two programs with the same signature, selected by a bool scalar.
Values cond(Value predicate, ProgramPtr if_true, ProgramPtr if_false, const Values& operands);

// Runs `body` on the operands; the gradient recomputes the body. `policy` says which of its values are stored instead
// (ops/remat_policy.h); empty: none.
Values remat(Builder&, ProgramPtr body, const Values& operands, const std::string& policy = "");

// Runs `body` on the operands. For gradients, `forward` maps the operands to (results..., residuals...) and `backward`
// maps (residuals..., cotangents..., operands...) to gradients of the first `arguments` operands.
Values custom_vjp(Builder&, ProgramPtr body, ProgramPtr forward, ProgramPtr backward, int64_t arguments,
                  const Values& operands);

// How the loop of a scan allocates and copies memory of its lane. Slices that are not aligned to `alignment` bytes are
// copied before a kernel reads them.
struct ScanMemory {
  std::function<BufferPtr(int64_t bytes)> allocate;
  std::function<void(void* to, const void* from, int64_t bytes)> copy;
  int64_t alignment = 1;
};
Kernel scan_kernel(const KernelSpec&, ScanMemory);

// The program with only some of its outputs, [first, last).
Program select_outputs(Program, size_t first, size_t last);

}  // namespace lockstep
