// What users say of where values lie inside a function, as equations of its program. Pure functions, safe from any
// thread.
#pragma once

#include "lockstep/trace.h"
#include "ops/constrain.h"

namespace lockstep::detail {

// A program whose outputs are laid out as said, by an equation of its own where a value is said to lie otherwise
// already: as an input, by a constraint, or as an earlier output. Shardings of other meshes say nothing.
Program with_outputs_said(const Program&, const Shardings& in, const Shardings& out, const Mesh& mesh);

}  // namespace lockstep::detail
