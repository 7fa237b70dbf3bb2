// Reverse-mode differentiation. Copies the forward equations. Then, from last to first, the `vjp` column of each op
// turns the cotangents of its results into cotangents of its operands; these are summed if a value has several uses.
#include "base/check.h"
#include "ops/control.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/nested_jvp.h"
#include "passes/passes.h"

namespace lockstep {
namespace {

class Differentiation {
 public:
  Differentiation(const Program& program, const std::vector<bool>& wanted)
      : p_(program), wanted_(wanted), map_(p_.types.size()), active_(p_.types.size(), false), ct_(p_.types.size()) {}

  Program run() {
    add_inputs();
    copy_forward();
    pull_back();
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(map_[id]);
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      if (!wanted_[i]) continue;
      const ValueId id = p_.inputs[i];
      outputs.push_back(ct_[id] ? ct_[id] : full(b_, p_.types[id], 0.0));
    }
    return b_.take(outputs);
  }

 private:
  // An equation that gradients flow through.
  struct Step {
    const Eqn* eqn;
    std::vector<bool> wanted;  // by operand
    Values in, out, residuals;
  };

  void add_inputs() {
    LOCKSTEP_CHECK(wanted_.size() == p_.inputs.size());
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      const ValueId id = p_.inputs[i];
      map_[id] = b_.input(p_.types[id]);
      active_[id] = wanted_[i];
      LOCKSTEP_CHECK(!wanted_[i] || is_inexact(p_.types[id].dtype));
    }
    // Cotangents come right after the inputs, so that the signature does not depend on the body.
    for (const ValueId id : p_.outputs)
      seeds_.push_back(is_inexact(p_.types[id].dtype) ? b_.input(p_.types[id]) : Value());
  }

  void copy_forward() {
    for (const Eqn& eqn : p_.eqns) {
      const detail::CallerLine line(eqn.at);
      Step step{&eqn, {}, {}, {}, {}};
      bool any = false;
      for (ValueId id : eqn.in) {
        step.in.push_back(map_[id]);
        step.wanted.push_back(active_[id]);
        any |= active_[id];
      }
      any = any && eqn.op->vjp;
      if (any && eqn.op->forward) {
        ForwardResult r = eqn.op->forward({*eqn.op, eqn.attrs, step.in, step.wanted, kSubPrograms});
        step.out = std::move(r.out);
        step.residuals = std::move(r.residuals);
      } else {
        b_.copy(p_, eqn, map_);
        for (ValueId id : eqn.out) step.out.push_back(map_[id]);
      }
      for (size_t k = 0; k < eqn.out.size(); ++k) {
        map_[eqn.out[k]] = step.out[k];
        active_[eqn.out[k]] = any && is_inexact(p_.types[eqn.out[k]].dtype);
      }
      if (any) steps_.push_back(std::move(step));
    }
  }

  void accumulate(ValueId id, Value v) {
    LOCKSTEP_CHECK(v.type() == p_.types[id], "a gradient has type {}, but its value has type {}", to_string(v.type()),
                   to_string(p_.types[id]));
    ct_[id] = ct_[id] ? add(ct_[id], v) : v;
  }

  void pull_back() {
    for (size_t i = 0; i < p_.outputs.size(); ++i)
      if (seeds_[i] && active_[p_.outputs[i]]) accumulate(p_.outputs[i], seeds_[i]);
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      const Eqn& eqn = *step->eqn;
      Values cts;
      bool any = false;
      for (ValueId id : eqn.out) {
        cts.push_back(ct_[id]);
        any |= static_cast<bool>(ct_[id]);
      }
      if (!any) continue;
      const detail::CallerLine line(eqn.at);
      const Grads grads =
          eqn.op->vjp({eqn.attrs, step->in, step->out, cts, step->residuals, step->wanted, kSubPrograms});
      LOCKSTEP_CHECK(grads.size() == eqn.in.size(), "{}: {} gradients for {} operands", eqn.op->name, grads.size(),
                     eqn.in.size());
      for (size_t k = 0; k < grads.size(); ++k)
        if (grads[k] && active_[eqn.in[k]]) accumulate(eqn.in[k], grads[k]);
    }
  }

  const Program& p_;
  const std::vector<bool>& wanted_;
  Builder b_;
  Values map_;                // by ValueId of the program: the value in b_
  std::vector<bool> active_;  // by ValueId: a gradient flows to it
  Values seeds_;              // by output: its cotangent; absent if it is an integer or bool
  std::vector<Step> steps_;
  Values ct_;  // by ValueId: its cotangent so far
};

}  // namespace

namespace {

Program nested_joint(const Program& program, const std::vector<bool>& wanted) {
  return checked(Differentiation(program, wanted).run());
}

}  // namespace

Program joint(const Program& program, const std::vector<bool>& wanted) {
  try {
    return nested_joint(program, wanted);
  } catch (const ForwardModeOnly& error) {
    throw Error(error.what());
  }
}

const SubPrograms kSubPrograms = {nested_joint, split, batch, nested_jvp};

}  // namespace lockstep
