// Splits a joint program into a forward part, which returns outputs and residuals, and a backward part.
#include "base/check.h"
#include "passes/passes.h"
#include "program/effects.h"

namespace lockstep {

Split split(const Program& joint_program, size_t known_inputs, size_t outputs) {
  const Program p = simplify(joint_program);
  std::vector<bool> known(p.types.size(), false);
  for (size_t i = 0; i < known_inputs; ++i) known[p.inputs[i]] = true;
  // Equations without operands (constants) go into both parts: recomputing them is cheaper than storing them.
  std::vector<bool> free(p.types.size(), false);
  for (const Eqn& eqn : p.eqns) {
    bool all_known = true;
    for (ValueId id : eqn.in) all_known &= known[id];
    for (ValueId id : eqn.out) {
      known[id] = all_known;
      free[id] = eqn.in.empty();
    }
  }

  Builder first, second;
  Values in_first(p.types.size()), in_second(p.types.size());
  std::vector<int> input_index(p.types.size(), -1);
  for (size_t i = 0; i < known_inputs; ++i) {
    in_first[p.inputs[i]] = first.input(p.types[p.inputs[i]]);
    input_index[p.inputs[i]] = static_cast<int>(i);
  }
  for (const Eqn& eqn : p.eqns)
    if (known[eqn.out[0]]) first.copy(p, eqn, in_first);

  Split result;
  result.outputs = outputs;
  Values known_outputs;
  for (size_t i = 0; i < outputs; ++i) {
    LOCKSTEP_CHECK(known[p.outputs[i]], "output {} depends on a cotangent", i);
    known_outputs.push_back(in_first[p.outputs[i]]);
  }
  // Residuals, in the order of their first use.
  auto need = [&](ValueId id) {
    if (!known[id] || free[id] || in_second[id]) return;
    in_second[id] = second.input(p.types[id]);
    known_outputs.push_back(in_first[id]);
    result.residual_input.push_back(input_index[id]);
  };
  for (const Eqn& eqn : p.eqns)
    if (!known[eqn.out[0]])
      for (ValueId id : eqn.in) need(id);
  for (size_t i = outputs; i < p.outputs.size(); ++i) need(p.outputs[i]);
  for (size_t i = known_inputs; i < p.inputs.size(); ++i) in_second[p.inputs[i]] = second.input(p.types[p.inputs[i]]);
  for (const Eqn& eqn : p.eqns)
    if (!known[eqn.out[0]] || (eqn.in.empty() && !has_effect(eqn))) second.copy(p, eqn, in_second);
  Values gradients;
  for (size_t i = outputs; i < p.outputs.size(); ++i) gradients.push_back(in_second[p.outputs[i]]);
  result.known = drop_dead(first.take(known_outputs));
  result.rest = drop_dead(second.take(gradients));
  return result;
}

}  // namespace lockstep
