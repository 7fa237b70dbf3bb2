// The passes: program in, program out. Pure functions, safe from any thread.
#pragma once

#include <string_view>

#include "lockstep/sharding.h"
#include "program/op.h"

namespace lockstep {

// inputs, one cotangent per floating output -> outputs, one gradient per wanted input (reverse mode). Inputs that the outputs do
// not depend on get zeros. REQUIRES: wanted inputs are floating.
Program joint(const Program&, const std::vector<bool>& wanted);

// Cuts a joint program at the cotangents, which are the inputs from `known_inputs` on. The first `outputs` outputs are the
// function's; the others are gradients.
Split split(const Program& joint, size_t known_inputs, size_t outputs);

// The program over a leading batch axis of `size` on the inputs that are `batched`. Outputs named in `force` come out batched
// whether or not they depend on a batched input (`force` empty: none). With the name of a mesh axis the batch is the devices
// along it: collectives over it are carried out, and nothing varies over it afterwards.
BatchedProgram batch(const Program&, const std::vector<bool>& batched, int64_t size, const std::vector<bool>& force,
                     const std::string& axis = "");

// Dead code, common subexpressions and the ops' own folds, to a fixed point. Changes no result.
Program simplify(const Program&);

// Only what the outputs depend on. Inputs stay.
Program drop_dead(const Program&);

// Replaces equations whose op says so by the equations of their body.
Program inline_bodies(const Program&, Inline when);

// Puts operands in the place of the equations that only say how values lie, in programs inside it too; all but those
// that speak of the mesh `keep`, which is as mesh_text() writes it.
Program drop_annotations(const Program&, std::string_view keep = "");

// Gathers elementwise equations into `fused` ones and into the epilogues of the ops that can carry them.
Program fuse(const Program&);

// The program itself; in debug builds checked first, so that a pass that breaks a type is caught where it happens.
Program checked(Program);

// The mesh that a program is about: that of what users wrote in it, else the first of the others, else that of a shard_map.
Mesh mesh_of(const Program&, const std::vector<NamedSharding>& others);

// How a program's outputs lie on devices when its inputs lie so: forwards along the factors of the ops' rules, and as equations
// say. Undefined where nothing is known.
std::vector<NamedSharding> propagate(const Program&, const std::vector<NamedSharding>& inputs);

// Everything between a traced program and a plan, in order.
Program lower(const Program&);

extern const SubPrograms kSubPrograms;

}  // namespace lockstep
