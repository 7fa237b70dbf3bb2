// custom_vjp and custom_jvp: functions with derivatives that the user defines.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "ops/control.h"
#include "ops/control_bodies.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/reduce.h"
#include "ops/shape_ops.h"
#include "ops/used_inputs.h"

namespace lockstep {
namespace {

ProgramPtr share_custom(Program p) { return std::make_shared<const Program>(std::move(p)); }

// ---- custom_vjp

ForwardResult custom_forward(const Forward& f) {
  Values out = f.in[0].builder().inline_program(f.attrs.program("forward"), f.in);
  const auto results = static_cast<std::ptrdiff_t>(f.attrs.program("body").outputs.size());
  ForwardResult r;
  r.residuals.assign(out.begin() + results, out.end());
  out.resize(static_cast<size_t>(results));
  r.out = std::move(out);
  return r;
}

// Throws Error for a wanted operand that the user's functions captured: they define derivatives of arguments only.
void expect_arguments(const char* what, const char* rule, std::span<const Value> in, const std::vector<bool>& wanted,
                      size_t arguments) {
  for (size_t i = arguments; i < in.size(); ++i)
    if (wanted[i] && is_inexact(in[i].dtype()))
      throw_error(
          "{}: the function is differentiated with respect to a captured value of type {}, but its {}; pass that value "
          "as an argument, or wrap it in stop_gradient",
          what, to_string(in[i].type()), rule);
}

// Throws Error for a gradient that differs between devices along axes over which its argument is the same.
void expect_gradient_of(size_t i, const Type& argument, const Type& gradient) {
  if (gradient == argument) return;
  std::vector<std::string> axes = gradient.varying;
  for (const std::string& axis : argument.varying) axes = without_axis_name(std::move(axes), axis);
  const std::string names = fmt::format("{}", fmt::join(axes, ", "));
  throw_error(
      "custom_vjp: gradient {} is {}, but the argument is {}: braces name the mesh axes along which each device has "
      "its "
      "own value, and the argument has one value for all devices along {}; return psum of the gradient over {}, or "
      "pass "
      "pvary of the argument",
      i, to_string(gradient), to_string(argument), names, names);
}

Grads custom_backward(const Vjp& v) {
  Values args(v.residuals.begin(), v.residuals.end());
  for (size_t i = 0; i < v.out.size(); ++i) args.push_back(v.cts[i] ? v.cts[i] : zeros_like(v.out[i]));
  args.insert(args.end(), v.in.begin(), v.in.end());
  Values grads = v.in[0].builder().inline_program(v.attrs.program("backward"), args);
  expect_arguments("custom_vjp", "backward function returns only gradients of its arguments", v.in, v.wanted,
                   grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!is_inexact(v.in[i].dtype())) grads[i] = Value();
    if (grads[i] && v.wanted[i]) expect_gradient_of(i, v.in[i].type(), grads[i].type());
  }
  grads.resize(v.in.size());
  return grads;
}

JvpResult no_custom_tangents(const Jvp&) {
  throw_error(
      "jvp: the function calls one whose gradient custom_vjp defines, which has no forward-mode derivative; define it "
      "by custom_jvp, which serves both modes, or use grad, vjp or linearize");
}

// The programs of custom_vjp and custom_jvp must agree on which values are batched: all, or, if the batch is the
// devices along a mesh axis, those that vary over it.
class BatchedAlike {
 public:
  explicit BatchedAlike(const Batch& b) : b_(b) {}

  bool is_batched(const Type& t) const {
    return b_.axis.empty() || std::binary_search(t.varying.begin(), t.varying.end(), b_.axis);
  }
  std::vector<bool> are_batched(const std::vector<Type>& types) const {
    std::vector<bool> out;
    for (const Type& t : types) out.push_back(is_batched(t));
    return out;
  }
  ProgramPtr batched(const Program& p, const std::vector<bool>& in) const {
    const std::vector<bool> wanted = are_batched(p.output_types());
    BatchedProgram all = b_.passes.batch(p, in, b_.size, wanted, b_.axis);
    LOCKSTEP_CHECK(all.batched == wanted, "{}: an invariant result varies over the axis", b_.op.name);
    return share_custom(std::move(all.program));
  }

 private:
  const Batch& b_;
};

Batched custom_batch(const Batch& b) {
  const Program &body = b.attrs.program("body"), &backward = b.attrs.program("backward");
  const BatchedAlike each(b);
  std::vector<bool> backward_in = each.are_batched(backward.input_types());
  std::copy(b.batched.begin(), b.batched.end(), backward_in.end() - static_cast<std::ptrdiff_t>(b.batched.size()));
  // Batched gradients of unbatched operands are summed.
  Builder summed;
  Values args;
  const ProgramPtr back = each.batched(backward, backward_in);
  for (ValueId id : back->inputs) args.push_back(summed.input(back->types[id]));
  Values grads = summed.inline_program(*back, args);
  for (size_t i = 0; i < grads.size(); ++i)
    if (!b.batched[i] && each.is_batched(backward.types[backward.outputs[i]]))
      grads[i] = emit(reduce_sum_op, {grads[i]}, {{"axes", std::vector<int64_t>{0}}});
  Values out =
      custom_vjp(b.builder, each.batched(body, b.batched), each.batched(b.attrs.program("forward"), b.batched),
                 share_custom(summed.take(grads)), b.attrs.integer("arguments"), Values(b.in.begin(), b.in.end()));
  return {std::move(out), each.are_batched(body.output_types())};
}

// ---- custom_jvp

// The floating arguments, which have a tangent among the inputs of the rule.
std::vector<size_t> tangent_arguments(const Attrs& attrs, std::span<const Value> in) {
  std::vector<size_t> out;
  for (size_t i = 0; i < static_cast<size_t>(attrs.integer("arguments")); ++i)
    if (is_inexact(in[i].dtype())) out.push_back(i);
  return out;
}

void expect_tangent_arguments(const Attrs& attrs, std::span<const Value> in, const std::vector<bool>& wanted) {
  expect_arguments("custom_jvp", "rule returns only tangents for its arguments", in, wanted,
                   static_cast<size_t>(attrs.integer("arguments")));
}

JvpResult custom_tangents(const Jvp& v) {
  expect_tangent_arguments(v.attrs, v.in, present(v.tangents));
  Values args(v.in.begin(), v.in.end());
  for (size_t i : tangent_arguments(v.attrs, v.in)) args.push_back(v.tangents[i] ? v.tangents[i] : zeros_like(v.in[i]));
  return results_and_tangents(v, v.builder.inline_program(v.attrs.program("rule"), args));
}

// What is known of a value of a rule before it runs.
enum class RulePart : uint8_t { zero, known, linear };  // linear: depends on tangents

// What the results of an equation are, as far as its row says. Sets `affine` if it adds something to what depends on
// tangents.
RulePart part_of_results(const Eqn& eqn, std::vector<RulePart> in, bool& affine) {
  if (in.empty()) {
    const Attr* value = eqn.attrs.find("value");
    return value && (*value == Attr(0.0) || *value == Attr(int64_t{0})) ? RulePart::zero : RulePart::known;
  }
  Linear linear = eqn.op->linear;
  if (eqn.op == &select_op) {  // linear in what it selects from
    in.erase(in.begin());
    linear = Linear::all;
  }
  if (eqn.op == &cast_op) linear = Linear::one;
  const auto count = [&](RulePart part) { return static_cast<size_t>(std::count(in.begin(), in.end(), part)); };
  if (count(RulePart::linear) > 0) {
    affine |= linear == Linear::all && count(RulePart::known) > 0;
    return linear == Linear::one && count(RulePart::zero) > 0 ? RulePart::zero : RulePart::linear;
  }
  const bool zero =
      linear == Linear::one ? count(RulePart::zero) > 0 : linear == Linear::all && count(RulePart::known) == 0;
  return zero ? RulePart::zero : RulePart::known;
}

// Throws Error if a tangent of the results has a part that does not depend on tangents. `tangents` maps the operands and
// their tangents to these.
void expect_no_constant_part(const Program& tangents, size_t operands) {
  std::vector<RulePart> parts(tangents.types.size(), RulePart::known);
  std::vector<bool> affine(tangents.types.size(), false);
  for (size_t i = operands; i < tangents.inputs.size(); ++i) parts[tangents.inputs[i]] = RulePart::linear;
  for (const Eqn& eqn : tangents.eqns) {
    for (size_t k = 0; k < eqn.out.size(); ++k) {  // a loop may return values beside tangents
      std::vector<bool> result(eqn.out.size(), false);
      result[k] = true;
      const std::vector<bool> used = used_operands(eqn, result);
      std::vector<RulePart> in;
      bool is_affine = false;
      for (size_t i = 0; i < eqn.in.size(); ++i) {
        if (!used[i]) continue;
        in.push_back(parts[eqn.in[i]]);
        is_affine = is_affine || affine[eqn.in[i]];
      }
      const RulePart part = part_of_results(eqn, in, is_affine);
      parts[eqn.out[k]] = part;
      affine[eqn.out[k]] = is_affine && part == RulePart::linear;
    }
  }
  for (size_t k = 0; k < tangents.outputs.size(); ++k)
    if (const ValueId id = tangents.outputs[k]; parts[id] == RulePart::known || affine[id])
      throw_error(
          "custom_jvp: the rule is not linear in the tangents, so it has no gradient: tangent {} of its result has a "
          "part that does not depend on them; leave that part out (zeros_like() for no derivative)",
          k);
}

// Throws Error if the gradients depend on the tangents, that is, if the rule is not linear in them. `gradients` maps the
// operands, `count` tangents and the cotangents to them.
void expect_constant_derivative(const Program& gradients, size_t operands, size_t count, const SubPrograms& passes) {
  Program p = gradients;
  const auto first = p.inputs.begin() + static_cast<std::ptrdiff_t>(operands);
  std::rotate(first, first + static_cast<std::ptrdiff_t>(count), p.inputs.end());
  const Program rest = passes.split(p, p.inputs.size() - count, 0).rest;
  const std::vector<bool> used = used_inputs(rest);
  for (size_t k = 0; k < count; ++k)
    if (const size_t at = rest.inputs.size() - count + k; used[at])
      throw_error(
          "custom_jvp: the rule is not linear in the tangents, so it has no gradient: the derivative of its tangents "
          "depends on tangent {}, {}; use each tangent only in sums and in products with values that are not tangents",
          k, to_string(rest.types[rest.inputs[at]]));
}

// The transpose of the rule, which must be linear in the tangents.
Grads transposed_rule(const Vjp& v) {
  expect_tangent_arguments(v.attrs, v.in, v.wanted);
  const Program& rule = v.attrs.program("rule");
  const Program tangents = select_outputs(rule, v.out.size(), rule.outputs.size());
  expect_no_constant_part(tangents, v.in.size());
  std::vector<bool> wanted(rule.inputs.size(), false);
  Values args(v.in.begin(), v.in.end());
  const std::vector<size_t> arguments = tangent_arguments(v.attrs, v.in);
  for (size_t k = 0; k < arguments.size(); ++k) {
    wanted[v.in.size() + k] = v.wanted[arguments[k]];
    args.push_back(zeros_like(v.in[arguments[k]]));
  }
  for (size_t i = 0; i < v.out.size(); ++i)
    if (is_inexact(v.out[i].dtype())) args.push_back(v.cts[i] ? v.cts[i] : zeros_like(v.out[i]));
  const ProgramPtr gradients = gradient_body(tangents, wanted, v.passes);
  expect_constant_derivative(*gradients, v.in.size(), arguments.size(), v.passes);
  return gradients_at(v.in[0].builder().inline_program(*gradients, args), v.wanted, 0, v.in.size());
}

Batched custom_jvp_batch(const Batch& b) {
  const Program& body = b.attrs.program("body");
  const BatchedAlike each(b);
  std::vector<bool> rule_in = b.batched;
  for (size_t i : tangent_arguments(b.attrs, b.in)) rule_in.push_back(b.batched[i]);
  Values out = custom_jvp(b.builder, each.batched(body, b.batched), each.batched(b.attrs.program("rule"), rule_in),
                          b.attrs.integer("arguments"), Values(b.in.begin(), b.in.end()));
  return {std::move(out), each.are_batched(body.output_types())};
}

// The operands are the first inputs of both programs.
int first_operands(const Eqn& eqn, std::string_view, size_t input) {
  return input < eqn.in.size() ? static_cast<int>(input) : -1;
}

}  // namespace

constinit const Op custom_vjp_op = {
    .name = "custom_vjp",
    .type = body_type,
    .forward = custom_forward,
    .vjp = custom_backward,
    .jvp = no_custom_tangents,
    .batch = custom_batch,
    .takes_float8 = true,
    .inline_body = Inline::early,
    .own_varying = true,
    .operand_of_input = last_operands,
};

constinit const Op custom_jvp_op = {
    .name = "custom_jvp",
    .type = body_type,
    .vjp = transposed_rule,
    .jvp = custom_tangents,
    .batch = custom_jvp_batch,
    .takes_float8 = true,
    .inline_body = Inline::early,
    .own_varying = true,
    .operand_of_input = first_operands,
};

Values custom_vjp(Builder& b, ProgramPtr body, ProgramPtr forward, ProgramPtr backward, int64_t arguments,
                  const Values& operands) {
  return b.emit(custom_vjp_op, operands,
                {{"body", std::move(body)},
                 {"forward", std::move(forward)},
                 {"backward", std::move(backward)},
                 {"arguments", arguments}});
}

Values custom_jvp(Builder& b, ProgramPtr body, ProgramPtr rule, int64_t arguments, const Values& operands) {
  return b.emit(custom_jvp_op, operands,
                {{"body", std::move(body)}, {"rule", std::move(rule)}, {"arguments", arguments}});
}

}  // namespace lockstep
