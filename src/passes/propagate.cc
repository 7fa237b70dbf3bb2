#include <algorithm>
#include <map>

#include "passes/passes.h"
#include "sharding/mesh_text.h"

namespace lockstep {
namespace {

using Entries = std::vector<SpecEntry>;

// Whether equal shards of a dimension are equal shards of the other dimensions of its factor: always without steps,
// else if the shards consist of complete steps.
bool keeps_boundaries(const Mesh& mesh, const Rule& rule, size_t operand, char factor, const SpecEntry& entry,
                      int64_t extent) {
  const auto stepped = [factor](const std::map<char, int64_t>& steps) { return steps.contains(factor); };
  if (std::none_of(rule.in_step.begin(), rule.in_step.end(), stepped) &&
      std::none_of(rule.out_step.begin(), rule.out_step.end(), stepped))
    return true;
  int64_t shards = 1;
  for (const std::string& axis : entry.axes) shards *= mesh.size(axis);
  return extent / step_of(rule.in_step, operand, factor) % shards == 0;
}

// The spec entries of an equation's results, from those of its operands: a factor is sharded as in the first operand
// that shards it, unless the axis already shards another factor.
std::vector<Entries> forward(const Program& p, const Mesh& mesh, const Eqn& eqn,
                             const std::vector<const Entries*>& in) {
  std::vector<Entries> out(eqn.out.size());
  if (!eqn.op->rule) return out;
  std::vector<Type> types;
  for (ValueId id : eqn.in) types.push_back(p.types[id]);
  const Rule rule = eqn.op->rule(types, eqn.attrs);
  std::map<char, SpecEntry> sharded;
  std::vector<std::string> used;
  for (size_t t = 0; t < eqn.in.size() && t < rule.in.size(); ++t) {
    if (rule.in[t].size() != types[t].shape.size()) return out;
    for (size_t d = 0; d < in[t]->size() && d < rule.in[t].size(); ++d) {
      const char factor = rule.in[t][d];
      const SpecEntry& entry = (*in[t])[d];
      if (entry.axes.empty() || sharded.count(factor) || rule.unsharded.find(factor) != std::string::npos) continue;
      const bool taken = std::any_of(entry.axes.begin(), entry.axes.end(), [&](const std::string& axis) {
        return std::find(used.begin(), used.end(), axis) != used.end();
      });
      if (taken || !keeps_boundaries(mesh, rule, t, factor, entry, types[t].shape[d])) continue;
      sharded[factor] = entry;
      used.insert(used.end(), entry.axes.begin(), entry.axes.end());
    }
  }
  for (size_t k = 0; k < out.size() && k < rule.out.size(); ++k) {
    if (rule.out[k].size() != p.types[eqn.out[k]].shape.size()) continue;
    for (char factor : rule.out[k]) {
      const auto it = sharded.find(factor);
      out[k].push_back(it == sharded.end() ? SpecEntry() : it->second);
    }
  }
  return out;
}

// The entries of an annotation; where it leaves a dimension open, those of the operand if their axes are not used.
Entries constrained(const Annotation& annotation, Entries made) {
  made.resize(annotation.axes.size());
  const auto is_given = [&](const std::string& axis) {
    return std::any_of(annotation.axes.begin(), annotation.axes.end(), [&](const auto& axes) {
      return axes && std::find(axes->begin(), axes->end(), axis) != axes->end();
    });
  };
  for (size_t d = 0; d < made.size(); ++d) {
    if (annotation.axes[d])
      made[d] = SpecEntry(*annotation.axes[d]);
    else if (std::any_of(made[d].axes.begin(), made[d].axes.end(), is_given))
      made[d] = SpecEntry();
  }
  return made;
}

// Finds the mesh of the first annotation that a user wrote, and of the first other one; also in nested programs.
void find_meshes(const Program& p, std::string& written, std::string& unwritten) {
  for (const Eqn& eqn : p.eqns) {
    for (const auto& [name, value] : eqn.attrs)
      if (const auto* body = std::get_if<ProgramPtr>(&value)) find_meshes(**body, written, unwritten);
    if (!eqn.op->annotation) continue;
    const Annotation annotation = eqn.op->annotation(p.types[eqn.out[0]], eqn.attrs);
    std::string& first = annotation.at.empty() ? unwritten : written;
    if (first.empty()) first = annotation.mesh;
  }
}

}  // namespace

Mesh mesh_of(const Program& p, const std::vector<NamedSharding>& others) {
  std::string written, unwritten;
  find_meshes(p, written, unwritten);
  if (!written.empty()) return mesh_from_text(written);
  for (const NamedSharding& sharding : others)
    if (sharding.defined()) return sharding.mesh();
  return unwritten.empty() ? Mesh() : mesh_from_text(unwritten);
}

std::vector<NamedSharding> propagate(const Program& p, const std::vector<NamedSharding>& inputs) {
  std::vector<NamedSharding> out(p.outputs.size());
  const Mesh mesh = mesh_of(p, inputs);
  if (!mesh.defined()) return out;
  const std::string text = mesh_text(mesh);
  std::vector<Entries> entries(p.types.size());
  for (size_t i = 0; i < p.inputs.size() && i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].mesh() == mesh) entries[p.inputs[i]] = inputs[i].spec().entries;
  for (const Eqn& eqn : p.eqns) {
    std::vector<const Entries*> in;
    for (ValueId id : eqn.in) in.push_back(&entries[id]);
    std::vector<Entries> made = forward(p, mesh, eqn, in);
    for (size_t k = 0; k < made.size(); ++k) entries[eqn.out[k]] = std::move(made[k]);
    if (!eqn.op->annotation) continue;
    const Annotation annotation = eqn.op->annotation(p.types[eqn.out[0]], eqn.attrs);
    if (annotation.mesh == text) entries[eqn.out[0]] = constrained(annotation, entries[eqn.out[0]]);
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = NamedSharding(mesh, PartitionSpec{entries[p.outputs[i]]});
  return out;
}

}  // namespace lockstep
