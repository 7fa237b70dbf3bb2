// Loops and choices of which each round or branch is launched separately. With CUDA 13 they become conditional work of a
// captured graph, so the GPU decides by itself. Otherwise, and in the first run, the host reads the condition or the
// index.
#pragma once

#include <vector>

#include "program/op.h"

namespace lockstep {

// `condition` and `step`: the kernels of while_condition() and while_step().
Kernel while_by_rounds(const KernelSpec&, Kernel condition, Kernel step);

Kernel cond_by_branches(const KernelSpec&, std::vector<Kernel> branches);

// Maps the number of rounds, then each carry after an even and after an odd number of rounds, to the last carries.
Program last_carries(const std::vector<Type>& types);

}  // namespace lockstep
