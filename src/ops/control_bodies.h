// What the rows that contain programs (control.cc, custom_derivatives.cc) have in common. A Builder belongs to one thread.
#pragma once

#include <string_view>
#include <vector>

#include "program/builder.h"
#include "program/op.h"

namespace lockstep {

// A `type` column: the results of the program in attribute `body`. Throws Error unless the operands are its inputs.
std::vector<Type> body_type(Types in, const Attrs&);

// An `operand_of_input` column: the operands are the last inputs of each program.
int last_operands(const Eqn&, std::string_view name, size_t input);

// (operands..., cotangents...) -> gradients of the wanted operands, without effects.
ProgramPtr gradient_body(const Program& body, const std::vector<bool>& wanted, const SubPrograms&);

// The gradients of wanted operands at their places among all; those before `skip` have none.
Grads gradients_at(const Values& gradients, const std::vector<bool>& wanted, size_t skip, size_t operands);

// Which values are present.
std::vector<bool> present(std::span<const Value> values);

// Takes apart results and the tangents of the floating ones.
JvpResult results_and_tangents(const Jvp&, const Values& all);

}  // namespace lockstep
