// The parts of the transforms that do not depend on C++ types: programs of gradients and batches, errors.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "array/apply.h"
#include "array/extend_inputs.h"
#include "array/trace.h"
#include "base/check.h"
#include "lockstep/forward.h"
#include "lockstep/math.h"
#include "lockstep/vmap.h"
#include "ops/collectives.h"
#include "ops/control.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/remat_policy.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep::detail {

Arrays call(const ProgramPtr& program, std::span<const Array> args) {
  auto body = [&](Builder& b, const Values& in) { return b.inline_program(*program, in); };
  if (tracing()) return apply("call", args, {}, body);
  return run_now(*program, args);
}

Arrays with_captures(std::span<const Array> args, const Traced& traced) {
  Arrays out(args.begin(), args.end());
  out.insert(out.end(), traced.captures.begin(), traced.captures.end());
  return out;
}

std::vector<Type> output_types(const ProgramPtr& program) { return program->output_types(); }

void check_scalar_loss(const Array& loss) {
  if (loss.rank() != 0)
    throw_error(
        "grad: the function returned {}; a gradient needs a scalar: reduce it with mean() or sum(), or use vjp with a "
        "cotangent of that shape",
        to_string(loss.type()));
  if (is_complex(loss.dtype()))
    throw_error(
        "grad: the function returned {}; a gradient needs a real result: use real() or abs() of it, or "
        "for the derivative of a holomorphic function vjp with the cotangent ones_like(result)",
        to_string(loss.type()));
  if (!is_floating(loss.dtype()))
    throw_error("grad: the function returned {}; a gradient needs a floating result: use astype()",
                to_string(loss.type()));
}

void check_differentiable(const Array& argument, const std::string& path) {
  if (!is_inexact(argument.dtype()))
    throw_error(
        "{} is {}, which has no gradient; convert it to a floating type, or differentiate with respect to other "
        "arguments: grad<1>(f)",
        path, to_string(argument.type()));
}

void check_cotangent(const Array& cotangent, const Array& result, size_t index) {
  if (cotangent.type() != result.type())
    throw_error(
        "vjp: cotangent {} is {}, but the result is {}; a cotangent has its result's type: start with "
        "ones_like(result)",
        index, to_string(cotangent.type()), to_string(result.type()));
}

ProgramPtr gradient_program(const Traced& traced, std::vector<bool> wanted) {
  wanted.resize(traced.program->inputs.size(), false);
  const ProgramPtr program = recognized(traced);
  const Program& p = *program;
  const Program both = joint(p, wanted);
  // Cotangents: 1 for the loss, 0 for aux.
  Builder b;
  Values args;
  for (ValueId id : p.inputs) args.push_back(b.input(p.types[id]));
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    const Type& t = p.types[p.outputs[i]];
    if (is_inexact(t.dtype)) args.push_back(full(b, t, i == 0 ? 1.0 : 0.0));
  }
  return std::make_shared<const Program>(b.take(b.inline_program(both, args)));
}

VjpPrograms vjp_programs(const Traced& traced, std::vector<bool> wanted) {
  wanted.resize(traced.program->inputs.size(), false);
  const ProgramPtr program = recognized(traced);
  const Program& p = *program;
  Split s = split(inline_bodies(joint(p, wanted), Inline::early), p.inputs.size(), p.outputs.size());
  return {std::make_shared<const Program>(std::move(s.known)), std::make_shared<const Program>(std::move(s.rest)),
          s.outputs};
}

Array zeros_of(const Type& type) {
  return apply1("zeros", {}, [&](Builder& b, const Values&) {
    return is_inexact(type.dtype) ? full(b, type, 0.0) : full(b, type, int64_t{0});
  });
}

ProgramPtr extend_inputs(const Program& program, const std::vector<Type>& inputs,
                         const std::vector<size_t>& positions) {
  Builder b;
  Values all, args;
  for (const Type& t : inputs) all.push_back(b.input(t));
  for (size_t at : positions) args.push_back(all[at]);
  return std::make_shared<const Program>(b.take(b.inline_program(program, args)));
}

std::vector<Type> types_of(std::span<const Array> arrays) {
  std::vector<Type> out;
  for (const Array& a : arrays) out.push_back(a.type());
  return out;
}

std::vector<size_t> positions(size_t own, size_t first, size_t captures) {
  std::vector<size_t> out;
  for (size_t i = 0; i < own; ++i) out.push_back(i);
  for (size_t i = 0; i < captures; ++i) out.push_back(first + i);
  return out;
}

Arrays remat(const Traced& body, std::span<const Array> args, const std::string& policy) {
  check_remat_policy(policy);
  return apply("remat", with_captures(args, body), {}, [&](Builder& b, const Values& v) {
    return lockstep::remat(b, body.program, v, policy == "nothing_saveable" ? "" : policy);
  });
}

Array checkpoint_name(const Array& x, const std::string& name) {
  if (name.empty() || name.find(',') != name.npos)
    throw_error("checkpoint_name: \"{}\" is not a name; use one without commas", name);
  return apply1("checkpoint_name", {x},
                [&](Builder&, const Values& v) { return lockstep::checkpoint_name(v[0], name); });
}

namespace {

// The backward program with gradients that vary over mesh axes as their arguments do. A gradient that varies over more is
// an error only where the function is differentiated.
ProgramPtr gradients_of(const Program& backward, const std::vector<Type>& arguments) {
  Builder b;
  Values args;
  for (ValueId id : backward.inputs) args.push_back(b.input(backward.types[id]));
  Values gradients = b.inline_program(backward, args);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Type &type = gradients[i].type(), &wanted = arguments[i];
    if (!is_inexact(wanted.dtype)) continue;
    if (type.dtype != wanted.dtype || type.shape != wanted.shape)
      throw_error("custom_vjp: gradient {} is {}, but the argument is {}; a gradient has its argument's type", i,
                  to_string(type), to_string(wanted));
    for (const std::string& axis : wanted.varying) gradients[i] = lockstep::pvary(gradients[i], axis);
  }
  return std::make_shared<const Program>(b.take(gradients));
}

}  // namespace

Arrays custom_vjp(const Traced& body, const Traced& forward, const Traced& backward, std::span<const Array> args) {
  const Arrays all = with_captures(with_captures(with_captures(args, body), forward), backward);
  const size_t n = args.size(), at_forward = n + body.captures.size(),
               at_backward = at_forward + forward.captures.size();
  std::vector<Type> types = types_of(all);
  const ProgramPtr f = extend_inputs(*body.program, types, positions(n, n, body.captures.size()));
  const ProgramPtr fwd = extend_inputs(*forward.program, types, positions(n, at_forward, forward.captures.size()));
  if (body.program->output_types() != std::vector<Type>([&] {
        auto t = fwd->output_types();
        t.resize(std::min(t.size(), body.program->outputs.size()));
        return t;
      }()))
    throw_error(
        "custom_vjp: forward returns other result types than the function; its first element must be the function's "
        "result");
  const Program& back = *backward.program;
  const size_t own = back.inputs.size() - backward.captures.size();  // residuals and cotangents
  std::vector<Type> back_types;
  for (size_t i = 0; i < own; ++i) back_types.push_back(back.types[back.inputs[i]]);
  back_types.insert(back_types.end(), types.begin(), types.end());
  const ProgramPtr extended =
      extend_inputs(back, back_types, positions(own, own + at_backward, backward.captures.size()));
  if (extended->outputs.size() != n)
    throw_error("custom_vjp: backward returns {} arrays for {} argument arrays; it must return one gradient for each",
                extended->outputs.size(), n);
  const ProgramPtr bwd = gradients_of(*extended, types);
  return apply("custom_vjp", all, {}, [&](Builder& b, const Values& v) {
    return lockstep::custom_vjp(b, f, fwd, bwd, static_cast<int64_t>(n), v);
  });
}

Arrays custom_jvp(const Traced& body, const Traced& rule, const Arrays& args) {
  const Arrays all = with_captures(with_captures(args, body), rule);
  const std::vector<Type> types = types_of(all);
  const size_t n = args.size(), outputs = body.program->outputs.size();
  const ProgramPtr f = extend_inputs(*body.program, types, positions(n, n, body.captures.size()));
  if (rule.program->outputs.size() != 2 * outputs)
    throw_error(
        "custom_jvp: the rule returns {} arrays; it must return {{result, tangent}}, of {} arrays each, like the "
        "function's "
        "result",
        rule.program->outputs.size(), outputs);
  Builder b;
  Values inputs, in;
  for (const Type& t : types) inputs.push_back(b.input(t));
  in.assign(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(n));
  for (size_t i = 0; i < n; ++i)
    in.push_back(is_inexact(types[i].dtype) ? b.input(types[i]) : full(b, types[i], int64_t{0}));
  in.insert(in.end(), inputs.end() - static_cast<std::ptrdiff_t>(rule.captures.size()), inputs.end());
  const Values out = b.inline_program(*rule.program, in);
  Values results;
  for (size_t k = 0; k < 2 * outputs; ++k) {
    const Type wanted = f->output_types()[k % outputs];
    if (k >= outputs && !is_inexact(wanted.dtype)) continue;
    Type widest = out[k].type();
    widest.varying = union_of(widest.varying, wanted.varying);
    if (widest != wanted)
      throw_error("custom_jvp: {} {} of the rule is {}, but the function's result is {}; both have one type",
                  k < outputs ? "result" : "tangent", k % outputs, to_string(out[k].type()), to_string(wanted));
    results.push_back(out[k]);
    for (const std::string& axis : wanted.varying) results.back() = lockstep::pvary(results.back(), axis);
  }
  const auto derived = std::make_shared<const Program>(b.take(results));
  return apply("custom_jvp", all, {}, [&](Builder& builder, const Values& v) {
    return lockstep::custom_jvp(builder, f, derived, static_cast<int64_t>(n), v);
  });
}

}  // namespace lockstep::detail

namespace lockstep::checkpoint_policies {

// Made before all other global objects, because some of those may use a policy when they are made.
[[gnu::init_priority(200)]] const CheckpointPolicy nothing_saveable{"nothing_saveable"};
[[gnu::init_priority(200)]] const CheckpointPolicy everything_saveable{"everything_saveable"};
[[gnu::init_priority(200)]] const CheckpointPolicy dots_saveable{"dots_saveable"};
[[gnu::init_priority(200)]] const CheckpointPolicy dots_with_no_batch_dims_saveable{"dots_with_no_batch_dims_saveable"};

namespace {

CheckpointPolicy by_names(std::string text, const std::vector<std::string>& names) {
  for (const std::string& name : names) text += (text.back() == ':' ? "" : ",") + name;
  return {std::move(text)};
}

}  // namespace

CheckpointPolicy save_only_these_names(const std::vector<std::string>& names) { return by_names("names:", names); }
CheckpointPolicy save_any_names_but_these(const std::vector<std::string>& names) {
  return by_names("names_but:", names);
}
CheckpointPolicy save_anything_except_these_names(const std::vector<std::string>& names) {
  return by_names("anything_but:", names);
}

}  // namespace lockstep::checkpoint_policies
