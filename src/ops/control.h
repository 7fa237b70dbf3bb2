// Ops that carry programs: scan (a loop), cond (one of two), remat (compute again rather than keep) and custom_vjp.
#pragma once

#include <functional>

#include "lane/buffer.h"
#include "program/builder.h"
#include "program/op.h"

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

// The loop of a scan, on any lane: how its memory is taken and copied there, and to how many bytes what kernels are
// given has to be aligned. Slices that are not are copied.
struct ScanMemory {
  std::function<BufferPtr(int64_t bytes)> allocate;
  std::function<void(void* to, const void* from, int64_t bytes)> copy;
  int64_t alignment = 1;
};
Kernel scan_kernel(const KernelSpec&, ScanMemory);

// The program with only some of its outputs, [first, last).
Program select_outputs(Program, size_t first, size_t last);

}  // namespace lockstep
