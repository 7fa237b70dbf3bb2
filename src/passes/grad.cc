// Reverse-mode differentiation. Copies the forward equations. Then, from last to first, the `vjp` column of each op
// turns the cotangents of its results into cotangents of its operands; these are summed if a value has several uses.
#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

struct Step {
  const Eqn* eqn;
  std::vector<bool> wanted;
  Values in, out, residuals;
};

}  // namespace

Program joint(const Program& program, const std::vector<bool>& wanted) {
  LOCKSTEP_CHECK(wanted.size() == program.inputs.size());
  Builder b;
  Values map(program.types.size());
  std::vector<bool> active(program.types.size(), false);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const ValueId id = program.inputs[i];
    map[id] = b.input(program.types[id]);
    active[id] = wanted[i];
    LOCKSTEP_CHECK(!wanted[i] || is_floating(program.types[id].dtype));
  }
  // Cotangents come right after the inputs, so that the signature does not depend on the body.
  std::vector<Value> seeds(program.outputs.size());
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const Type& t = program.types[program.outputs[i]];
    if (is_floating(t.dtype)) seeds[i] = b.input(t);
  }

  std::vector<Step> steps;
  for (const Eqn& eqn : program.eqns) {
    Step step{&eqn, {}, {}, {}, {}};
    bool any = false;
    for (ValueId id : eqn.in) {
      step.in.push_back(map[id]);
      step.wanted.push_back(active[id]);
      any |= active[id];
    }
    any = any && eqn.op->vjp;
    if (any && eqn.op->forward) {
      ForwardResult r = eqn.op->forward({*eqn.op, eqn.attrs, step.in, step.wanted, kSubPrograms});
      step.out = std::move(r.out);
      step.residuals = std::move(r.residuals);
    } else {
      b.copy(program, eqn, map);
      for (ValueId id : eqn.out) step.out.push_back(map[id]);
    }
    for (size_t k = 0; k < eqn.out.size(); ++k) {
      map[eqn.out[k]] = step.out[k];
      active[eqn.out[k]] = any && is_floating(program.types[eqn.out[k]].dtype);
    }
    if (any) steps.push_back(std::move(step));
  }

  Values ct(program.types.size());
  auto accumulate = [&](ValueId id, Value v) {
    LOCKSTEP_CHECK(v.type() == program.types[id], "a gradient has type {}, but its value has type {}",
                   to_string(v.type()), to_string(program.types[id]));
    ct[id] = ct[id] ? add(ct[id], v) : v;
  };
  for (size_t i = 0; i < program.outputs.size(); ++i)
    if (seeds[i] && active[program.outputs[i]]) accumulate(program.outputs[i], seeds[i]);

  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const Eqn& eqn = *step->eqn;
    Values cts;
    bool any = false;
    for (ValueId id : eqn.out) {
      cts.push_back(ct[id]);
      any |= static_cast<bool>(ct[id]);
    }
    if (!any) continue;
    const Grads grads = eqn.op->vjp({eqn.attrs, step->in, step->out, cts, step->residuals, step->wanted, kSubPrograms});
    LOCKSTEP_CHECK(grads.size() == eqn.in.size(), "{}: {} gradients for {} operands", eqn.op->name, grads.size(),
                   eqn.in.size());
    for (size_t k = 0; k < grads.size(); ++k)
      if (grads[k] && active[eqn.in[k]]) accumulate(eqn.in[k], grads[k]);
  }

  Values outputs;
  for (ValueId id : program.outputs) outputs.push_back(map[id]);
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (!wanted[i]) continue;
    const ValueId id = program.inputs[i];
    outputs.push_back(ct[id] ? ct[id] : full(b, program.types[id], 0.0));
  }
  return checked(b.take(outputs));
}

const SubPrograms kSubPrograms = {joint, split, batch};

}  // namespace lockstep
