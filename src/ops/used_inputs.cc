#include "ops/used_inputs.h"

#include <algorithm>

#include "ops/ops.h"
#include "program/op.h"

namespace lockstep {
namespace {

// By operand of a scan. `live`: by result, whether it has a use.
std::vector<bool> used_by_scan(const Eqn& eqn, std::vector<bool> live) {
  const auto carries = static_cast<size_t>(eqn.attrs.integer("carry"));
  while (true) {  // a carry has a use if another one with a use depends on it
    std::vector<bool> used = used_inputs(eqn.attrs.program("body"), live);
    bool grew = false;
    for (size_t i = 0; i < carries; ++i)
      if (used[i] && !live[i]) live[i] = grew = true;
    if (grew) continue;
    for (size_t i = 0; i < carries; ++i) used[i] = used[i] || live[i];  // a scan of length 0 returns it
    return used;
  }
}

// The same for a while_loop. The condition always has a use.
std::vector<bool> used_by_while(const Eqn& eqn, std::vector<bool> live) {
  const std::vector<bool> seen = used_inputs(eqn.attrs.program("cond"));
  const size_t carries = live.size(), cond_constants = seen.size() - carries;
  for (size_t i = 0; i < carries; ++i) live[i] = live[i] || seen[cond_constants + i];
  while (true) {
    const std::vector<bool> used = used_inputs(eqn.attrs.program("body"), live);
    const size_t constants = used.size() - carries;
    bool grew = false;
    for (size_t i = 0; i < carries; ++i)
      if (used[constants + i] && !live[i]) live[i] = grew = true;
    if (grew) continue;
    std::vector<bool> out(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(cond_constants));
    out.insert(out.end(), used.begin(), used.begin() + static_cast<std::ptrdiff_t>(constants));
    out.insert(out.end(), live.begin(), live.end());
    return out;
  }
}

}  // namespace

// Operands that nested programs name count if one of these programs uses them.
std::vector<bool> used_operands(const Eqn& eqn, const std::vector<bool>& live) {
  if (eqn.op == &scan_op) return used_by_scan(eqn, live);
  if (eqn.op == &while_loop_op) return used_by_while(eqn, live);
  std::vector<bool> used(eqn.in.size(), true);
  if (!eqn.op->operand_of_input) return used;
  std::vector<bool> read(eqn.in.size(), false), named(eqn.in.size(), false);
  for (const auto& [name, value] : eqn.attrs) {
    const auto* nested = std::get_if<ProgramPtr>(&value);
    if (!nested) continue;
    const bool same_results = (*nested)->outputs.size() == live.size();
    const std::vector<bool> inputs = same_results ? used_inputs(**nested, live) : used_inputs(**nested);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int operand = eqn.op->operand_of_input(eqn, name, i);
      if (operand < 0) continue;
      named[static_cast<size_t>(operand)] = true;
      read[static_cast<size_t>(operand)] = read[static_cast<size_t>(operand)] || inputs[i];
    }
  }
  for (size_t k = 0; k < used.size(); ++k) used[k] = read[k] || !named[k];
  return used;
}

std::vector<bool> used_inputs(const Program& p, const std::vector<bool>& outputs) {
  std::vector<bool> live(p.types.size(), false), out;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i]) live[p.outputs[i]] = true;
  for (auto eqn = p.eqns.rbegin(); eqn != p.eqns.rend(); ++eqn) {
    std::vector<bool> results;
    for (ValueId id : eqn->out) results.push_back(live[id]);
    if (std::find(results.begin(), results.end(), true) == results.end()) continue;
    const std::vector<bool> used = used_operands(*eqn, results);
    for (size_t k = 0; k < used.size(); ++k)
      if (used[k]) live[eqn->in[k]] = true;
  }
  for (const ValueId id : p.inputs) out.push_back(live[id]);
  return out;
}

std::vector<bool> used_inputs(const Program& p) { return used_inputs(p, std::vector<bool>(p.outputs.size(), true)); }

}  // namespace lockstep
