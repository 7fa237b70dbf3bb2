#include "ops/control.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ops/control_bodies.h"
#include "ops/cuda/kernels.h"
#include "ops/dims.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/remat_policy.h"
#include "ops/shape_ops.h"
#include "program/effects.h"

namespace lockstep {
namespace {

void expect_signature(std::string_view op, const Program& body, Types in, size_t skip = 0) {
  if (body.inputs.size() + skip != in.size())
    throw_error("{}: the program takes {} arrays and got {}", op, body.inputs.size(), in.size() - skip);
  for (size_t i = 0; i < body.inputs.size(); ++i)
    if (body.types[body.inputs[i]] != in[i + skip])
      throw_error("{}: operand {} is {}, but the program takes {}", op, i, to_string(in[i + skip]),
                  to_string(body.types[body.inputs[i]]));
}

ProgramPtr share(Program p) { return std::make_shared<const Program>(std::move(p)); }

// The operands, then one cotangent per floating result, zeros if absent.
Values with_cotangents(const Vjp& v, size_t skip) {
  Values args(v.in.begin() + static_cast<std::ptrdiff_t>(skip), v.in.end());
  for (size_t i = 0; i < v.out.size(); ++i)
    if (is_inexact(v.out[i].dtype())) args.push_back(v.cts[i] ? v.cts[i] : zeros_like(v.out[i]));
  return args;
}

ProgramPtr tangent_body(const Program& body, const std::vector<bool>& wanted, const SubPrograms& passes) {
  return share(passes.jvp(body, wanted));
}

// The operands from `skip` on, then the tangents that are present.
Values with_tangents(const Jvp& v, size_t skip) {
  Values args(v.in.begin() + static_cast<std::ptrdiff_t>(skip), v.in.end());
  for (const Value& t : v.tangents)
    if (t) args.push_back(t);
  return args;
}

// ---- cond

// What all branches return for result `output`: input `input`, or a constant; or neither.
struct CommonOutput {
  int input = -1;
  const Eqn* constant = nullptr;

  bool operator==(const CommonOutput& other) const {
    return input == other.input && !constant == !other.constant &&
           (!constant || (constant->op == other.constant->op && constant->attrs == other.constant->attrs));
  }
};
bool is_common(const CommonOutput& x) { return x.input >= 0 || x.constant; }

CommonOutput plain_output(const Program& branch, size_t output) {
  const ValueId id = branch.outputs[output];
  const auto input = std::find(branch.inputs.begin(), branch.inputs.end(), id);
  if (input != branch.inputs.end()) return {static_cast<int>(input - branch.inputs.begin())};
  for (const Eqn& eqn : branch.eqns)
    if (eqn.in.empty() && eqn.out.size() == 1 && eqn.out[0] == id && !is_ordered(eqn)) return {-1, &eqn};
  return {};
}

CommonOutput common_output(const std::vector<ProgramPtr>& branches, size_t output) {
  const CommonOutput first = plain_output(*branches[0], output);
  for (const ProgramPtr& branch : branches)
    if (!(plain_output(*branch, output) == first)) return {};
  return first;
}

// The results of a cond. Those that do not depend on the branch are taken from its operands, or are constants.
Values with_common_outputs(Values out, const std::vector<ProgramPtr>& branches, const Values& operands) {
  for (size_t i = 0; i < out.size(); ++i) {
    const CommonOutput common = common_output(branches, i);
    if (common.input >= 0)
      out[i] = operands[static_cast<size_t>(common.input)];
    else if (common.constant)
      out[i] = out[i].builder().emit_typed(*common.constant->op, {}, common.constant->attrs, {&out[i].type(), 1})[0];
  }
  return out;
}

// A cond with the same predicate or index and other branches.
Values cond_of(Value which, const std::vector<ProgramPtr>& branches, const Values& operands) {
  if (which.dtype() == DType::boolean) return cond(which, branches[1], branches[0], operands);
  return switch_case(which, branches, operands);
}

std::vector<Type> cond_type(Types in, const Attrs& attrs) {
  const bool by_index = !attrs.find("if_true");
  if (in.empty() || in[0].dtype != (by_index ? DType::i32 : DType::boolean) || in[0].rank() != 0)
    throw_error("cond: the {} is {}; it must be one {}", by_index ? "index" : "predicate",
                in.empty() ? "missing" : to_string(in[0]), by_index ? "i32" : "bool");
  const std::vector<ProgramPtr> branches = branches_of(attrs);
  if (branches.empty()) throw_error("cond: has no branches; give at least one");
  for (const ProgramPtr& branch : branches) expect_signature("cond", *branch, in, 1);
  const std::vector<Type> a = branches.back()->output_types();
  for (const ProgramPtr& branch : branches) {
    const std::vector<Type> b = branch->output_types();
    if (a.size() != b.size())
      throw_error("cond: one branch returns {} arrays, the other {}; the branches must agree", a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i])
        throw_error("cond: result {} is {} in one branch and {} in the other; the branches must agree", i,
                    to_string(a[i]), to_string(b[i]));
  }
  return a;
}

Grads cond_vjp(const Vjp& v) {
  const std::vector<bool> wanted(v.wanted.begin() + 1, v.wanted.end());
  std::vector<ProgramPtr> branches = branches_of(v.attrs);
  for (ProgramPtr& branch : branches) branch = gradient_body(*branch, wanted, v.passes);
  return gradients_at(cond_of(v.in[0], branches, with_cotangents(v, 1)), v.wanted, 1, v.in.size());
}

JvpResult cond_jvp(const Jvp& v) {
  const std::vector<bool> wanted = present(v.tangents.subspan(1));
  std::vector<ProgramPtr> branches = branches_of(v.attrs);
  for (ProgramPtr& branch : branches) branch = tangent_body(*branch, wanted, v.passes);
  return results_and_tangents(v, cond_of(v.in[0], branches, with_tangents(v, 1)));
}

// Whether two values are one: the same value, or constants written alike.
bool is_same_value(Value a, Value b) {
  if (a == b) return true;
  const Eqn *x = a.builder().definition(a), *y = b.builder().definition(b);
  return x && y && x->in.empty() && !is_ordered(*x) && x->op == y->op && x->attrs == y->attrs && a.type() == b.type();
}

Batched cond_batch(const Batch& b) {
  std::vector<ProgramPtr> branches = branches_of(b.attrs);
  const std::vector<bool> batched(b.batched.begin() + 1, b.batched.end());
  const Values operands(b.in.begin() + 1, b.in.end());
  std::vector<bool> force(branches[0]->outputs.size(), false);
  if (b.batched[0])
    for (size_t i = 0; i < force.size(); ++i) force[i] = !is_common(common_output(branches, i));
  for (const ProgramPtr& branch : branches) {
    const std::vector<bool> own = b.passes.batch(*branch, batched, b.size, {}, b.axis).batched;
    for (size_t i = 0; i < force.size(); ++i) force[i] = force[i] || own[i];
  }
  for (ProgramPtr& branch : branches) branch = share(b.passes.batch(*branch, batched, b.size, force, b.axis).program);
  Values out = b.batched[0] ? choose_among(b.in[0], branches, operands) : cond_of(b.in[0], branches, operands);
  return {std::move(out), std::move(force)};
}

Kernel cond_cpu(const KernelSpec& spec) {
  std::vector<Kernel> branches;
  for (const ProgramPtr& branch : branches_of(spec.attrs)) branches.push_back(spec.compile(*branch));
  return [branches, by_index = spec.in[0].dtype == DType::i32](const void* const* in, void* const* out) {
    const int32_t which = by_index ? *static_cast<const int32_t*>(in[0]) : int32_t{*static_cast<const bool*>(in[0])};
    branches[branch_at(which, branches.size())](in + 1, out);
  };
}

// ---- remat

Grads remat_vjp(const Vjp& v) {
  const Values args = with_cotangents(v, 0);
  if (v.attrs.find("policy")) return gradients_at(remat_gradients(v, args), v.wanted, 0, v.in.size());
  const Values gradients = remat(args[0].builder(), gradient_body(v.attrs.program("body"), v.wanted, v.passes), args);
  return gradients_at(gradients, v.wanted, 0, v.in.size());
}

JvpResult remat_jvp(const Jvp& v) {
  const ProgramPtr body = tangent_body(v.attrs.program("body"), present(v.tangents), v.passes);
  Attrs attrs = v.attrs;
  attrs.set("body", body);
  return results_and_tangents(v, v.builder.emit(v.op, with_tangents(v, 0), std::move(attrs)));
}

Batched remat_batch(const Batch& b) {
  BatchedProgram body = b.passes.batch(b.attrs.program("body"), b.batched, b.size, {}, b.axis);
  Attrs attrs = b.attrs;
  attrs.set("body", share(std::move(body.program)));
  return {b.builder.emit(b.op, b.in, std::move(attrs)), body.batched};
}

}  // namespace

ProgramPtr gradient_body(const Program& body, const std::vector<bool>& wanted, const SubPrograms& passes) {
  Program p = passes.joint(without_effects(body), wanted);  // the forward computation has had them
  const size_t all = p.outputs.size();
  return share(select_outputs(std::move(p), body.outputs.size(), all));
}

Grads gradients_at(const Values& gradients, const std::vector<bool>& wanted, size_t skip, size_t operands) {
  Grads out(operands);
  size_t g = 0;
  for (size_t i = skip; i < operands; ++i)
    if (wanted[i]) out[i] = gradients[g++];
  return out;
}

std::vector<bool> present(std::span<const Value> values) {
  std::vector<bool> out;
  for (const Value& v : values) out.push_back(static_cast<bool>(v));
  return out;
}

JvpResult results_and_tangents(const Jvp& v, const Values& all) {
  const size_t results = v.out.size();
  JvpResult r{Values(results), Values(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(results))};
  for (size_t i = 0, next = results; i < results; ++i)
    if (is_inexact(v.out[i].dtype())) r.tangents[i] = all[next++];
  return r;
}

int last_operands(const Eqn& eqn, std::string_view name, size_t input) {
  return static_cast<int>(input + eqn.in.size()) - static_cast<int>(eqn.attrs.program(name).inputs.size());
}

std::vector<Type> body_type(Types in, const Attrs& attrs) {
  const Program& body = attrs.program("body");
  expect_signature("remat", body, in);
  return body.output_types();
}

constinit const Op cond_op = {
    .name = "cond",
    .type = cond_type,
    .vjp = cond_vjp,
    .jvp = cond_jvp,
    .batch = cond_batch,
    .takes_float8 = true,
    .own_varying = true,
    .operand_of_input = last_operands,
    .multiply_adds =
        [](Types, Types, const Attrs& attrs, double (*of)(const Program&)) {
          double most = 0;
          for (const ProgramPtr& branch : branches_of(attrs)) most = std::max(most, of(*branch));
          return most;
        },
    .cpu = cond_cpu,
    .cuda = LOCKSTEP_CUDA(cond_cuda),
};

constinit const Op remat_op = {
    .name = "remat",
    .type = body_type,
    .forward = remat_forward,
    .vjp = remat_vjp,
    .jvp = remat_jvp,
    .batch = remat_batch,
    .takes_float8 = true,
    .inline_body = Inline::late,
    .own_varying = true,
    .operand_of_input = last_operands,
};

Values cond(Value predicate, ProgramPtr if_true, ProgramPtr if_false, const Values& operands) {
  Values in{predicate};
  in.insert(in.end(), operands.begin(), operands.end());
  Values out = predicate.builder().emit(cond_op, in, {{"if_true", if_true}, {"if_false", if_false}});
  return with_common_outputs(std::move(out), {if_false, if_true}, operands);
}

Values switch_case(Value index, const std::vector<ProgramPtr>& branches, const Values& operands) {
  Values in{index};
  in.insert(in.end(), operands.begin(), operands.end());
  Attrs attrs;
  for (size_t i = 0; i < branches.size(); ++i) attrs.set(fmt::format("branch{}", i), branches[i]);
  return with_common_outputs(index.builder().emit(cond_op, in, std::move(attrs)), branches, operands);
}

std::vector<ProgramPtr> branches_of(const Attrs& attrs) {
  if (attrs.find("if_true")) return {attrs.get<ProgramPtr>("if_false"), attrs.get<ProgramPtr>("if_true")};
  std::vector<ProgramPtr> out;
  while (attrs.find(fmt::format("branch{}", out.size())))
    out.push_back(attrs.get<ProgramPtr>(fmt::format("branch{}", out.size())));
  return out;
}

Values choose_among(Value which, const std::vector<ProgramPtr>& branches, const Values& operands) {
  Builder& b = which.builder();
  Values out = b.inline_program(*branches.back(), operands);
  for (size_t k = branches.size() - 1; k-- > 0;) {
    const Values branch = b.inline_program(*branches[k], operands);
    // A predicate selects the later branch. An index beyond the last branch selects the last one.
    const bool is_bool = which.dtype() == DType::boolean;
    const Value later = is_bool ? which : lt(full(b, which.type(), static_cast<int64_t>(k)), which);
    for (size_t i = 0; i < out.size(); ++i)
      if (!is_same_value(out[i], branch[i]))
        out[i] = select(broadcast(later, out[i].shape(), counting(0, which.rank())), out[i], branch[i]);
  }
  return out;
}

size_t branch_at(int32_t index, size_t branches) {
  return static_cast<size_t>(std::clamp<int64_t>(index, 0, static_cast<int64_t>(branches) - 1));
}

Values remat(Builder& b, ProgramPtr body, const Values& operands, const std::string& policy) {
  Attrs attrs{{"body", std::move(body)}};
  if (!policy.empty()) attrs.set("policy", policy);
  return b.emit(remat_op, operands, std::move(attrs));
}

Program select_outputs(Program p, size_t first, size_t last) {
  p.outputs = std::vector<ValueId>(p.outputs.begin() + static_cast<std::ptrdiff_t>(first),
                                   p.outputs.begin() + static_cast<std::ptrdiff_t>(last));
  return p;
}

}  // namespace lockstep
