#include "array/constraints.h"

#include <fmt/format.h>

#include <map>

#include "array/apply.h"
#include "base/check.h"
#include "lockstep/collectives.h"
#include "lockstep/jit.h"
#include "lockstep/vmap.h"
#include "program/builder.h"
#include "sharding/mesh_text.h"

namespace lockstep::detail {
namespace {

using DimAxes = std::vector<std::optional<std::vector<std::string>>>;

// A use of a mesh in the user's program, as errors describe it.
struct MeshUse {
  std::string mesh;
  std::string text;
};

MeshUse describe_use(const std::string& what, const std::string& mesh, const PartitionSpec& spec,
                     const std::string& at) {
  return {mesh, fmt::format("{} at {} uses {} on mesh {}", what, at, to_string(spec), mesh)};
}

void collect_uses(const Program& p, std::vector<MeshUse>& out) {
  for (const Eqn& eqn : p.eqns) {
    if (eqn.op->annotation)
      if (const Annotation a = eqn.op->annotation(p.types[eqn.out[0]], eqn.attrs); !a.at.empty())
        out.push_back(describe_use(a.by, a.mesh, spec_of(a), a.at));
    for (const auto& [name, value] : eqn.attrs)
      if (const auto* body = std::get_if<ProgramPtr>(&value)) collect_uses(**body, out);
  }
}

void check_fits(const char* what, const Array& array, const NamedSharding& sharding) {
  if (!sharding.defined()) throw_error("{}: the sharding is empty; create it with NamedSharding(mesh, spec)", what);
  if (!array.defined()) throw_error("{}: the array is empty; assign it before use", what);
  sharding.index_box(array.type().shape, 0);  // throws when the spec is longer than the rank
}

}  // namespace

Array constrained(const Array& array, const NamedSharding& sharding, const char* what, const SourceLine& at) {
  check_fits(what, array, sharding);
  if (!array.is_traced()) return with_sharding(array, sharding);
  for (const SpecEntry& entry : sharding.spec().entries)
    for (const std::string& axis : entry.axes)
      if (is_axis_in_scope(axis))
        throw_error(
            "{}: {} names axis \"{}\", but this code runs per device along that axis; remove it from the spec, or set "
            "the sharding outside the mapped function",
            what, to_string(sharding.spec()), axis);
  Annotation annotation = annotation_of(sharding, array.type().shape.size());
  annotation.by = what;
  annotation.at = to_string(at);
  Array out = apply1(what, {array}, [&](Builder&, const Values& v) { return constrain(v[0], annotation); });
  out.node()->sharding = sharding;
  return out;
}

namespace {

// The program in which a batch of a constrained value will be sharded by `axis`; empty: by none.
Program with_batch_axis(Program p, const std::string& axis) {
  for (Eqn& eqn : p.eqns) {
    const Attrs attrs = eqn.attrs;
    for (const auto& [name, value] : attrs)
      if (const auto* body = std::get_if<ProgramPtr>(&value))
        eqn.attrs.set(name, std::make_shared<const Program>(with_batch_axis(**body, axis)));
    if (!eqn.op->annotation) continue;
    eqn.attrs.erase("batch_axis");
    if (!axis.empty()) eqn.attrs.set("batch_axis", axis);
  }
  return p;
}

}  // namespace

VmapProgram batch_along(const Traced& traced, std::vector<bool> batched, int64_t size, const std::vector<bool>& force,
                        const std::string& axis, const std::string& spmd_axis) {
  if (spmd_axis.empty()) return batch_program(traced, std::move(batched), size, force, axis);
  Traced marked = traced;
  marked.program = std::make_shared<const Program>(with_batch_axis(*traced.program, spmd_axis));
  VmapProgram out = batch_program(marked, std::move(batched), size, force, axis);
  out.program = std::make_shared<const Program>(with_batch_axis(*out.program, ""));
  return out;
}

void check_one_mesh(const Traced& traced, const JitOptions& options, const SourceLine& at) {
  std::vector<MeshUse> all;
  for (const auto& [list, name] :
       {std::pair(&options.in_shardings, "in_shardings"), std::pair(&options.out_shardings, "out_shardings")})
    for (size_t i = 0; i < list->size(); ++i)
      for (size_t k = 0; k < (*list)[i].values().size(); ++k) {
        const NamedSharding& s = (*list)[i].values()[k];
        if (!s.defined()) continue;
        const std::string& path = (*list)[i].paths().paths[k];
        all.push_back(describe_use(fmt::format("{}[{}]{}{}", name, i, path.empty() ? "" : ", ", path),
                                   mesh_text(s.mesh()), s.spec(), to_string(at)));
      }
  collect_uses(*traced.program, all);
  for (const MeshUse& other : all)
    if (other.mesh != all[0].mesh)
      throw_error("jit: {}, but {}; a compiled function runs on one mesh: use the same Mesh for both shardings",
                  all[0].text, other.text);
}

Program constrain_outputs(const Program& p, const Shardings& in, const Shardings& out, const Mesh& mesh) {
  std::map<ValueId, DimAxes> known;
  for (size_t i = 0; i < p.inputs.size() && i < in.size(); ++i)
    if (in[i].defined() && in[i].mesh() == mesh)
      known[p.inputs[i]] = annotation_of(in[i], p.types[p.inputs[i]].shape.size()).axes;
  for (const Eqn& eqn : p.eqns)
    if (eqn.op->annotation) known[eqn.out[0]] = eqn.op->annotation(p.types[eqn.out[0]], eqn.attrs).axes;
  Builder b;
  Values args;
  for (ValueId id : p.inputs) args.push_back(b.input(p.types[id]));
  Values results = b.inline_program(p, args);
  for (size_t j = 0; j < results.size() && j < out.size(); ++j) {
    if (!out[j].defined() || out[j].mesh() != mesh) continue;
    Annotation annotation = annotation_of(out[j], results[j].shape().size());
    if (known.emplace(p.outputs[j], annotation.axes).first->second == annotation.axes) continue;
    annotation.by = fmt::format("output {}", j);
    results[j] = constrain(results[j], annotation);
  }
  return b.take(results);
}

}  // namespace lockstep::detail
