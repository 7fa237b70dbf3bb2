// The passes: program in, program out. Pure functions, safe from any thread.
#pragma once

#include <string_view>

#include "lockstep/sharding.h"
#include "program/definitions.h"
#include "program/op.h"

namespace lockstep {

// Reverse-mode differentiation. The joint program maps the inputs and one cotangent per floating output to the outputs
// and one gradient per wanted input. Inputs that the outputs do not depend on get zeros. REQUIRES: wanted inputs are
// floating.
Program joint(const Program&, const std::vector<bool>& wanted);

// Forward-mode differentiation. The program maps the inputs and one tangent per wanted input to the outputs and one tangent
// per floating output; tangents that are zero are constants. REQUIRES: wanted inputs are floating. Throws Error for a
// function whose derivative is defined for reverse mode only.
Program jvp(const Program&, const std::vector<bool>& wanted);

// The same program with outputs that do not depend on tangents, so that split() separates them. Loops that have no gradient
// run once for the outputs, and once more for the tangents.
Program jvp_apart(const Program&, const std::vector<bool>& wanted);

// Splits a joint program, or one of jvp_apart(), into the part that needs no cotangent or tangent and the rest. The cotangents are the inputs from
// `known_inputs` on. The first `outputs` outputs are the function's; the others are gradients.
Split split(const Program& joint, size_t known_inputs, size_t outputs);

// Adds a leading batch axis of `size` to the inputs that are `batched`. Outputs marked in `force` are batched even if
// they do not depend on a batched input (`force` empty: none). If `axis` names a mesh axis, the batch axis stands for
// the devices along it: collectives over it become ordinary ops, and no value varies over it afterwards.
BatchedProgram batch(const Program&, const std::vector<bool>& batched, int64_t size, const std::vector<bool>& force,
                     const std::string& axis = "");

// Removes dead code and, with `merge`, common subexpressions, and applies the ops' folds, to a fixed point. Does not change
// results.
Program simplify(const Program&, bool merge = true);

// Replaces subgraphs that compute what a row computes by the row (the column `recognize`), also in nested programs. The
// result is simplified if something was replaced, and else the program itself. Results change by rounding only.
// `contents`: of inputs that are constants, such as a mask.
Program recognize(const Program&, const InputContents& contents = {});

// The multiplications, each with an addition, of all products, convolutions and attention of a program (the column
// `multiply_adds`), with those of nested programs.
double count_multiply_adds(const Program&);

// Removes equations that no output depends on. Keeps all inputs and collectives.
Program drop_dead(const Program&);

// Replaces equations whose op has `inline_body == when` by the equations of their body.
Program inline_bodies(const Program&, Inline when);

// Replaces sharding annotations by their operands, also in nested programs; except annotations of the mesh `keep`,
// given as mesh_text() writes it.
Program drop_annotations(const Program&, std::string_view keep = "");

// Fuses elementwise equations into `fused` equations and into the epilogues of ops that support one.
Program fuse(const Program&);

// Returns the program. Debug builds check its types first, to catch a pass that breaks them.
Program checked(Program);

// The mesh of a program: that of the user's annotations, else the first defined of `others`, else that of a shard_map.
Mesh mesh_of(const Program&, const std::vector<NamedSharding>& others);

// Propagates shardings from a program's inputs to its outputs, along the factors of the ops' rules and by annotations.
// The result is an undefined NamedSharding for an output whose sharding does not follow from them.
std::vector<NamedSharding> propagate(const Program&, const std::vector<NamedSharding>& inputs);

// All passes between a traced program and an execution plan. Without `merge`, common subexpressions stay: the program has
// recomputations that were inlined before.
Program lower(const Program&, bool merge = true);

// The passes above that rows with sub-programs use.
extern const SubPrograms kSubPrograms;

}  // namespace lockstep
