// Forward-mode differentiation. Copies the equations and computes, beside each, the tangents of its results from
// those of its operands. In this order:
//   - the `jvp` column, if the row has one;
//   - a sum: the same op of the tangents (the column `linear`);
//   - an elementwise op: its Jacobian is diagonal, so its `vjp` column maps tangents as it maps cotangents;
//   - a product: the sum over its operands of the op with the tangent in the operand's place (the column `linear`);
//   - else the transpose of the `vjp` column, which is linear in the cotangents: its own gradient with respect to them.
// The `jvp` columns of rows that contain programs compute results and tangents in one equation. Where both are needed
// apart, these rows have the transpose of their gradient. If that is not possible, as for while_loop, the tangents are
// those of an equation that computes the results once more.
#include <algorithm>

#include "base/check.h"
#include "ops/control.h"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "ops/tangents.h"
#include "passes/nested_jvp.h"
#include "passes/passes.h"
#include "program/effects.h"

namespace lockstep {
namespace {

// Zero tangents are absent.
Value unless_zero(Value tangent) {
  const Attr* value = full_value(tangent);
  return value && std::get<double>(*value) == 0 ? Value() : tangent;
}

Value sum_of(Value a, Value b) { return a && b ? add(a, b) : a ? a : b; }

// One equation whose operands have tangents.
struct TangentStep {
  const Eqn& eqn;
  Values in, out, residuals, tangents;
  std::vector<bool> wanted;  // which operands have a tangent

  const Op& op() const { return *eqn.op; }
  size_t tangent_count() const { return static_cast<size_t>(std::count(wanted.begin(), wanted.end(), true)); }
};

Values tangents_of_product(const TangentStep& s, Builder& b) {
  Values sums(s.out.size());
  for (size_t i = 0; i < s.in.size(); ++i) {
    if (!s.tangents[i]) continue;
    Values in = s.in;
    in[i] = s.tangents[i];
    const Values terms = b.emit(s.op(), in, s.eqn.attrs);
    for (size_t k = 0; k < sums.size(); ++k) sums[k] = sum_of(sums[k], terms[k]);
  }
  return sums;
}

// Whether an operand's gradient has the type of the result's, so that a diagonal Jacobian equals its transpose.
bool is_diagonal(const TangentStep& s) {
  if (!s.op().loop || s.out.size() != 1) return false;
  for (size_t i = 0; i < s.in.size(); ++i)
    if (s.wanted[i] && s.in[i].type() != s.out[0].type()) return false;
  return true;
}

Values tangents_of_elementwise(const TangentStep& s) {
  Value sum;
  for (size_t i = 0; i < s.in.size(); ++i) {
    if (!s.tangents[i]) continue;
    std::vector<bool> only(s.in.size(), false);
    only[i] = true;
    sum = sum_of(sum, s.op().vjp({s.eqn.attrs, s.in, s.out, {&s.tangents[i], 1}, {}, only, kSubPrograms})[i]);
  }
  return {sum};
}

// (operands, results, residuals, cotangents) -> gradients of the operands in `wanted`, which becomes those that
// have one.
Program pullback(const TangentStep& s, std::vector<bool>& wanted) {
  Builder b;
  const auto inputs_like = [&b](const Values& values) {
    Values out;
    for (const Value& v : values) out.push_back(b.input(v.type()));
    return out;
  };
  const Values in = inputs_like(s.in), out = inputs_like(s.out), residuals = inputs_like(s.residuals);
  Values cts;
  for (const Value& y : out) cts.push_back(is_inexact(y.dtype()) ? b.input(y.type()) : Value());
  const Grads grads = s.op().vjp({s.eqn.attrs, in, out, cts, residuals, s.wanted, kSubPrograms});
  Values results;
  for (size_t i = 0; i < grads.size(); ++i) {
    wanted[i] = wanted[i] && grads[i];
    if (wanted[i]) results.push_back(grads[i]);
  }
  return b.take(results);
}

Values transposed_vjp(const TangentStep& s, Builder& b) {
  Values tangents(s.out.size());
  std::vector<bool> wanted = s.wanted;
  const Program back = pullback(s, wanted);
  const size_t gradients = back.outputs.size(), known = s.in.size() + s.out.size() + s.residuals.size();
  if (gradients == 0) return tangents;
  std::vector<bool> cotangents(back.inputs.size(), false);
  std::fill(cotangents.begin() + static_cast<std::ptrdiff_t>(known), cotangents.end(), true);
  Program forward = kSubPrograms.joint(back, cotangents);
  forward.outputs.erase(forward.outputs.begin(), forward.outputs.begin() + static_cast<std::ptrdiff_t>(gradients));
  Values args = s.in;
  args.insert(args.end(), s.out.begin(), s.out.end());
  args.insert(args.end(), s.residuals.begin(), s.residuals.end());
  for (size_t i = known; i < back.inputs.size(); ++i) args.push_back(full(b, back.types[back.inputs[i]], 0.0));
  for (size_t i = 0; i < s.in.size(); ++i)
    if (wanted[i]) args.push_back(s.tangents[i]);
  const Values results = b.inline_program(drop_dead(forward), args);
  size_t next = 0;
  for (size_t k = 0; k < tangents.size(); ++k)
    if (is_inexact(s.out[k].dtype())) tangents[k] = results[next++];
  return tangents;
}

bool holds_programs(const Eqn& eqn) {
  return std::any_of(eqn.attrs.begin(), eqn.attrs.end(),
                     [](const auto& attr) { return std::holds_alternative<ProgramPtr>(attr.second); });
}

Attrs without_effects_of_programs(const Attrs& attrs) {
  Attrs out = attrs;
  for (const auto& [name, value] : attrs)
    if (const auto* body = std::get_if<ProgramPtr>(&value))
      out.set(name, std::make_shared<const Program>(without_effects(**body)));
  return out;
}

class ForwardDifferentiation {
 public:
  // `apart`: results do not depend on tangents.
  ForwardDifferentiation(const Program& program, const std::vector<bool>& wanted, bool apart)
      : p_(program), wanted_(wanted), apart_(apart), map_(p_.types.size()), tangent_(p_.types.size()) {}

  Program run() {
    add_inputs();
    for (const Eqn& eqn : p_.eqns) add(eqn);
    Values outputs;
    for (ValueId id : p_.outputs) outputs.push_back(map_[id]);
    for (ValueId id : p_.outputs)
      if (is_inexact(p_.types[id].dtype)) outputs.push_back(tangent_[id] ? tangent_[id] : full(b_, p_.types[id], 0.0));
    return drop_dead(b_.take(outputs));
  }

 private:
  void add_inputs() {
    LOCKSTEP_CHECK(wanted_.size() == p_.inputs.size());
    for (ValueId id : p_.inputs) map_[id] = b_.input(p_.types[id]);
    for (size_t i = 0; i < p_.inputs.size(); ++i) {
      if (!wanted_[i]) continue;
      LOCKSTEP_CHECK(is_inexact(p_.types[p_.inputs[i]].dtype));
      tangent_[p_.inputs[i]] = b_.input(p_.types[p_.inputs[i]]);
    }
  }

  void add(const Eqn& eqn) {
    const detail::CallerLine line(eqn.at);
    TangentStep step{eqn, {}, {}, {}, {}, {}};
    for (ValueId id : eqn.in) {
      step.in.push_back(map_[id]);
      step.tangents.push_back(tangent_[id]);
      step.wanted.push_back(static_cast<bool>(tangent_[id]));
    }
    const bool any = step.tangent_count() > 0 && (eqn.op->jvp || eqn.op->vjp);
    if (any && apart_ && eqn.op->vjp && holds_programs(eqn)) return set_tangents(eqn, tangents_apart(step));
    if (any && !eqn.op->jvp && eqn.op->forward)
      compute_forward(step);
    else
      copy(step);
    if (any) set_tangents(eqn, tangents_of(step));
  }

  void copy(TangentStep& s) {
    b_.copy(p_, s.eqn, map_);
    s.out.clear();
    for (ValueId id : s.eqn.out) s.out.push_back(map_[id]);
  }

  // Same, with the residuals of the gradient.
  void compute_forward(TangentStep& s) {
    ForwardResult r = s.op().forward({s.op(), s.eqn.attrs, s.in, s.wanted, kSubPrograms});
    s.out = std::move(r.out);
    s.residuals = std::move(r.residuals);
    for (size_t k = 0; k < s.eqn.out.size(); ++k) map_[s.eqn.out[k]] = s.out[k];
  }

  // Adds the results of an equation that contains programs. Returns tangents that they do not depend on.
  Values tangents_apart(TangentStep& s) {
    try {
      if (s.op().forward)
        compute_forward(s);
      else
        copy(s);
      return transposed_vjp(s, b_);
    } catch (const ForwardModeOnly&) {
      if (s.out.empty()) copy(s);  // else the equation is there, with its effects
      s.residuals.clear();
      const Attrs attrs = without_effects_of_programs(s.eqn.attrs);  // the results have had them
      return s.op().jvp({s.op(), attrs, s.in, s.out, s.tangents, b_, kSubPrograms}).tangents;
    }
  }

  // May replace results of the equation.
  Values tangents_of(const TangentStep& s) {
    const Op& op = s.op();
    const Jvp context{op, s.eqn.attrs, s.in, s.out, s.tangents, b_, kSubPrograms};
    if (op.jvp) {
      JvpResult r = op.jvp(context);
      for (size_t k = 0; k < r.out.size(); ++k) map_[s.eqn.out[k]] = r.out[k];
      return std::move(r.tangents);
    }
    if (op.linear == Linear::all && s.tangent_count() == s.in.size()) return tangents_of_linear(context).tangents;
    if (is_diagonal(s)) return tangents_of_elementwise(s);
    if (op.linear == Linear::one) return tangents_of_product(s, b_);
    if (op.linear == Linear::all) return tangents_of_linear(context).tangents;
    return transposed_vjp(s, b_);
  }

  void set_tangents(const Eqn& eqn, const Values& tangents) {
    LOCKSTEP_CHECK(tangents.size() == eqn.out.size(), "{}: {} tangents for {} results", eqn.op->name, tangents.size(),
                   eqn.out.size());
    for (size_t k = 0; k < tangents.size(); ++k) {
      const Type& type = p_.types[eqn.out[k]];
      if (!tangents[k] || !is_inexact(type.dtype)) continue;
      LOCKSTEP_CHECK(tangents[k].type() == type, "{}: a tangent has type {}, but its value has type {}", eqn.op->name,
                     to_string(tangents[k].type()), to_string(type));
      tangent_[eqn.out[k]] = unless_zero(tangents[k]);
    }
  }

  const Program& p_;
  const std::vector<bool>& wanted_;
  const bool apart_;
  Builder b_;
  Values map_;      // by ValueId of the program: the value in b_
  Values tangent_;  // by ValueId: its tangent; absent for zero
};

}  // namespace

namespace {

Program forward_mode(const Program& program, const std::vector<bool>& wanted, bool apart) {
  try {
    return checked(ForwardDifferentiation(program, wanted, apart).run());
  } catch (const ForwardModeOnly& error) {
    throw Error(error.what());
  }
}

}  // namespace

Program nested_jvp(const Program& program, const std::vector<bool>& wanted) {
  return checked(ForwardDifferentiation(program, wanted, false).run());
}
Program jvp(const Program& program, const std::vector<bool>& wanted) { return forward_mode(program, wanted, false); }
Program jvp_apart(const Program& program, const std::vector<bool>& wanted) {
  return forward_mode(program, wanted, true);
}

}  // namespace lockstep
