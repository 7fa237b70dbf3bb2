#include "ops/remat_policy.h"

#include <algorithm>

#include "base/check.h"
#include "ops/control.h"
#include "ops/ops.h"
#include "program/effects.h"

namespace lockstep {
namespace {

constexpr std::string_view kNames = "names:", kNamesBut = "names_but:", kAnythingBut = "anything_but:";

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t comma = std::min(names.find(','), names.size());
    if (names.substr(0, comma) == name) return true;
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return false;
}

// Whether an einsum has a dimension that both operands and the result have.
bool has_batch_dims(std::string_view spec) {
  const size_t comma = spec.find(','), arrow = spec.find("->");
  if (comma == spec.npos || arrow == spec.npos) return false;
  const std::string_view a = spec.substr(0, comma), b = spec.substr(comma + 1, arrow - comma - 1), out = spec.substr(arrow + 2);
  return std::any_of(a.begin(), a.end(), [&](char c) { return b.find(c) != b.npos && out.find(c) != out.npos; });
}

bool has_programs(const Eqn& eqn) {
  return std::any_of(eqn.attrs.begin(), eqn.attrs.end(),
                     [](const Attrs::Entry& entry) { return std::holds_alternative<ProgramPtr>(entry.second); });
}

bool is_stored(const Eqn& eqn, std::string_view policy) {
  if (eqn.in.empty()) return false;  // constants
  const bool named = eqn.op == &checkpoint_name_op;
  const std::string_view name = named ? std::string_view(eqn.attrs.get<std::string>("name")) : "";
  if (policy == "everything_saveable") return true;
  if (policy == "dots_saveable") return eqn.op->multiply_adds && !has_programs(eqn);
  if (policy == "dots_with_no_batch_dims_saveable")
    return eqn.op == &einsum_op && !has_batch_dims(eqn.attrs.get<std::string>("spec"));
  if (policy.starts_with(kNames)) return named && lists(policy.substr(kNames.size()), name);
  if (policy.starts_with(kNamesBut)) return named && !lists(policy.substr(kNamesBut.size()), name);
  return !named || !lists(policy.substr(kAnythingBut.size()), name);
}

// The forward and backward programs of a body under a policy.
struct Recomputation {
  Split split;
  std::vector<ValueId> stored;  // values of split.known
  Program recompute;            // (operands..., stored...) -> residuals

  Recomputation(const Attrs& attrs, const std::vector<bool>& wanted, const SubPrograms& passes) {
    const Program& body = attrs.program("body");
    split = passes.split(passes.joint(body, wanted), body.inputs.size(), body.outputs.size());
    const std::string& policy = attrs.get<std::string>("policy");
    std::vector<bool> candidate(split.known.types.size(), false);
    for (const Eqn& eqn : split.known.eqns) {
      const bool stored_here = is_stored(eqn, policy);
      for (ValueId id : eqn.out) candidate[id] = stored_here;
      // A name stands for its operand, which the gradient of the operand's equation may need, too.
      if (eqn.op == &checkpoint_name_op) candidate[eqn.in[0]] = stored_here;
    }
    for (ValueId id : split.known.inputs) candidate[id] = false;
    // Going back from the residuals, the search stops at candidates.
    std::vector<bool> live(split.known.types.size(), false);
    const Program& known = split.known;
    for (size_t i = split.outputs; i < known.outputs.size(); ++i) live[known.outputs[i]] = true;
    std::vector<const Eqn*> again;
    for (size_t i = known.eqns.size(); i-- > 0;) {
      const Eqn& eqn = known.eqns[i];
      if (std::none_of(eqn.out.begin(), eqn.out.end(), [&](ValueId id) { return live[id] && !candidate[id]; })) continue;
      again.push_back(&eqn);
      for (ValueId id : eqn.in) live[id] = true;
    }
    for (size_t id = 0; id < live.size(); ++id)
      if (live[id] && candidate[id]) stored.push_back(static_cast<ValueId>(id));
    make_recompute(again);
  }

 private:
  void make_recompute(const std::vector<const Eqn*>& reversed) {
    const Program known = without_effects(split.known);
    Builder b;
    Values map(known.types.size());
    for (ValueId id : known.inputs) map[id] = b.input(known.types[id]);
    Values values;
    for (ValueId id : stored) values.push_back(b.input(known.types[id]));
    for (size_t i = 0; i < stored.size(); ++i) map[stored[i]] = values[i];
    for (size_t i = reversed.size(); i-- > 0;) {
      b.copy(known, *reversed[i], map);
      for (size_t k = 0; k < stored.size(); ++k) map[stored[k]] = values[k];
    }
    Values residuals;
    for (size_t i = split.outputs; i < known.outputs.size(); ++i) residuals.push_back(map[known.outputs[i]]);
    recompute = b.take(residuals);
  }
};

std::vector<Type> name_type(Types in, const Attrs&) {
  if (in.size() != 1) throw_error("checkpoint_name: it takes one array and got {}", in.size());
  return {in[0]};
}

Grads name_vjp(const Vjp& v) { return {v.ct()}; }

Batched name_batch(const Batch& b) { return checkpoint_name(b.in[0], b.attrs.get<std::string>("name")); }

}  // namespace

// Replaced by its operand when programs are lowered.
constinit const Op checkpoint_name_op = {
    .name = "checkpoint_name",
    .linear = Linear::one,
    .type = name_type,
    .vjp = name_vjp,
    .batch = name_batch,
    .takes_float8 = true,
    .inline_body = Inline::early,
};

void check_remat_policy(std::string_view policy) {
  for (std::string_view name : {"", "nothing_saveable", "everything_saveable", "dots_saveable",
                                "dots_with_no_batch_dims_saveable"})
    if (policy == name) return;
  for (std::string_view prefix : {kNames, kNamesBut, kAnythingBut})
    if (policy.starts_with(prefix)) return;
  throw_error("remat: \"{}\" is not a policy; use one of checkpoint_policies", policy);
}

ForwardResult remat_forward(const Forward& f) {
  ForwardResult r;
  if (!f.attrs.find("policy")) {
    r.out = f.in[0].builder().emit(f.op, f.in, f.attrs);
    return r;
  }
  Recomputation parts(f.attrs, f.wanted, f.passes);
  Program forward = std::move(parts.split.known);
  forward.outputs.resize(parts.split.outputs);
  forward.outputs.insert(forward.outputs.end(), parts.stored.begin(), parts.stored.end());
  r.out = f.in[0].builder().inline_program(forward, f.in);
  r.residuals.assign(r.out.begin() + static_cast<std::ptrdiff_t>(parts.split.outputs), r.out.end());
  r.out.resize(parts.split.outputs);
  return r;
}

Values remat_gradients(const Vjp& v, const Values& args) {
  const Recomputation parts(v.attrs, v.wanted, v.passes);
  Builder b;
  Values operands, cotangents, outer(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(v.in.size()));
  for (const Value& x : v.in) operands.push_back(b.input(x.type()));
  for (const Value& x : v.residuals) operands.push_back(b.input(x.type()));
  for (size_t i = v.in.size(); i < args.size(); ++i) cotangents.push_back(b.input(args[i].type()));
  Values rest = b.inline_program(parts.recompute, operands);
  rest.insert(rest.end(), cotangents.begin(), cotangents.end());
  auto body = std::make_shared<const Program>(b.take(b.inline_program(parts.split.rest, rest)));
  outer.insert(outer.end(), v.residuals.begin(), v.residuals.end());
  outer.insert(outer.end(), args.begin() + static_cast<std::ptrdiff_t>(v.in.size()), args.end());
  return remat(args[0].builder(), std::move(body), outer);
}

Value checkpoint_name(Value x, const std::string& name) {
  Builder identity;
  const Value input = identity.input(x.type());
  return x.builder().emit(checkpoint_name_op, Values{x},
                          {{"body", std::make_shared<const Program>(identity.take(Values{input}))}, {"name", name}})[0];
}

}  // namespace lockstep
