// Sharding constraints as equations of a program. Pure functions, safe to call from any thread.
#pragma once

#include "lockstep/trace.h"
#include "ops/constrain.h"

namespace lockstep::detail {

// Returns the program with a constraint equation for each output whose sharding in `out` differs from what
// the program already states for that value (as an input, by a constraint, or as an earlier output).
// Shardings on other meshes are ignored.
Program constrain_outputs(const Program&, const Shardings& in, const Shardings& out, const Mesh& mesh);

}  // namespace lockstep::detail
