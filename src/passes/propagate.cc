#include <algorithm>
#include <map>

#include "passes/passes.h"

namespace lockstep {
namespace {

using Entries = std::vector<SpecEntry>;

// Are equal pieces of a dimension equal pieces of the others of its factor? So it is unless their boundaries fall
// between its steps.
bool keeps_boundaries(const Mesh& mesh, const Rule& rule, char factor, const SpecEntry& entry, int64_t extent) {
  if (!rule.in_step.contains(factor) && !rule.out_step.contains(factor)) return true;
  int64_t pieces = 1;
  for (const std::string& axis : entry.axes) pieces *= mesh.size(axis);
  return extent / step_of(rule.in_step, factor) % pieces == 0;
}

// The entries of an equation's results from those of its operands: a factor is cut as in the first operand that cuts
// it, unless the axis cuts another factor already.
std::vector<Entries> forward(const Program& p, const Mesh& mesh, const Eqn& eqn,
                             const std::vector<const Entries*>& in) {
  std::vector<Entries> out(eqn.out.size());
  if (!eqn.op->rule) return out;
  std::vector<Type> types;
  for (ValueId id : eqn.in) types.push_back(p.types[id]);
  const Rule rule = eqn.op->rule(types, eqn.attrs);
  std::map<char, SpecEntry> cut;
  std::vector<std::string> used;
  for (size_t t = 0; t < eqn.in.size() && t < rule.in.size(); ++t) {
    if (rule.in[t].size() != types[t].shape.size()) return out;
    for (size_t d = 0; d < in[t]->size() && d < rule.in[t].size(); ++d) {
      const char factor = rule.in[t][d];
      const SpecEntry& entry = (*in[t])[d];
      if (entry.axes.empty() || cut.count(factor) || rule.whole.find(factor) != std::string::npos) continue;
      const bool taken = std::any_of(entry.axes.begin(), entry.axes.end(), [&](const std::string& axis) {
        return std::find(used.begin(), used.end(), axis) != used.end();
      });
      if (taken || !keeps_boundaries(mesh, rule, factor, entry, types[t].shape[d])) continue;
      cut[factor] = entry;
      used.insert(used.end(), entry.axes.begin(), entry.axes.end());
    }
  }
  for (size_t k = 0; k < out.size() && k < rule.out.size(); ++k) {
    if (rule.out[k].size() != p.types[eqn.out[k]].shape.size()) continue;
    for (char factor : rule.out[k]) {
      const auto it = cut.find(factor);
      out[k].push_back(it == cut.end() ? SpecEntry() : it->second);
    }
  }
  return out;
}

}  // namespace

std::vector<NamedSharding> propagate(const Program& p, const std::vector<NamedSharding>& inputs) {
  std::vector<NamedSharding> out(p.outputs.size());
  const auto first = std::find_if(inputs.begin(), inputs.end(), [](const NamedSharding& s) { return s.defined(); });
  if (first == inputs.end()) return out;
  const Mesh mesh = first->mesh();
  std::vector<Entries> entries(p.types.size());
  for (size_t i = 0; i < p.inputs.size() && i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].mesh() == mesh) entries[p.inputs[i]] = inputs[i].spec().entries;
  for (const Eqn& eqn : p.eqns) {
    std::vector<const Entries*> in;
    for (ValueId id : eqn.in) in.push_back(&entries[id]);
    std::vector<Entries> made = forward(p, mesh, eqn, in);
    for (size_t k = 0; k < made.size(); ++k) entries[eqn.out[k]] = std::move(made[k]);
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = NamedSharding(mesh, PartitionSpec{entries[p.outputs[i]]});
  return out;
}

}  // namespace lockstep
