#include "program/definitions.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "program/op.h"

namespace lockstep {

const Eqn* DefinedValue::eqn() const {
  const int32_t index = where->defined_by_[id];
  return index < 0 ? nullptr : &where->program_.eqns[static_cast<size_t>(index)];
}

const Type& DefinedValue::type() const { return where->program_.types[id]; }

DefinedValue DefinedValue::operand(size_t i) const { return where->value(eqn()->in[i]); }

const void* DefinedValue::contents() const {
  if (!where->contents_) return nullptr;
  const std::vector<ValueId>& inputs = where->program_.inputs;
  const auto at = std::find(inputs.begin(), inputs.end(), id);
  return at == inputs.end() ? nullptr : where->contents_(static_cast<size_t>(at - inputs.begin()));
}

Definitions::Definitions(const Program& program, const InputContents& contents)
    : program_(program), contents_(contents), defined_by_(program.types.size(), -1), uses_(program.types.size(), 0) {
  for (size_t i = 0; i < program.eqns.size(); ++i) {
    for (const ValueId id : program.eqns[i].in) ++uses_[id];
    for (const ValueId id : program.eqns[i].out) defined_by_[id] = static_cast<int32_t>(i);
  }
  for (const ValueId id : program.outputs) ++uses_[id];
}

Definitions::Definitions(const Program& program, const Definitions& outer, const Eqn& holder, std::string_view name)
    : Definitions(program) {
  outer_ = &outer;
  outer_id_.resize(program.types.size(), -1);
  if (!holder.op->operand_of_input) return;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const int operand = holder.op->operand_of_input(holder, name, i);
    if (operand >= 0) outer_id_[program.inputs[i]] = holder.in[static_cast<size_t>(operand)];
  }
}

DefinedValue Definitions::value(ValueId id) const {
  if (outer_ && outer_id_[id] >= 0) return outer_->value(static_cast<ValueId>(outer_id_[id]));
  return {this, id};
}

bool Definitions::only_leads_to(ValueId from, ValueId to) const {
  // Removes the use of `to`, then each equation whose results have no use left.
  std::unordered_map<ValueId, int32_t> removed{{to, 1}};
  const auto unused = [&](ValueId id) {
    const auto found = removed.find(id);
    return (found == removed.end() ? 0 : found->second) == uses_[id];
  };
  std::unordered_set<int32_t> dropped;
  std::vector<ValueId> pending{to};
  while (!pending.empty()) {
    const ValueId id = pending.back();
    pending.pop_back();
    if (!unused(id)) continue;
    if (id == from) return true;
    const int32_t index = defined_by_[id];
    if (index < 0) continue;
    const Eqn& eqn = program_.eqns[static_cast<size_t>(index)];
    bool all = true;
    for (const ValueId out : eqn.out) all &= unused(out);
    if (!all || !dropped.insert(index).second) continue;
    for (const ValueId in : eqn.in) {
      ++removed[in];
      pending.push_back(in);
    }
  }
  return false;
}

}  // namespace lockstep
