// Batching: copies equations without batched operands, and rewrites the others by their op's rule or `batch` column.
#include <algorithm>

#include "base/check.h"
#include "ops/ops.h"
#include "ops/shape_ops.h"
#include "passes/passes.h"

namespace lockstep {

namespace {

// Whether a program, an equation or a nested program refers to the mesh axis.
bool mentions(const Program& program, const std::string& axis);

bool mentions(const Eqn& eqn, const std::string& axis) {
  for (const auto& [name, value] : eqn.attrs) {
    const auto* text = std::get_if<std::string>(&value);
    if (text && name == "axis" && *text == axis) return true;
    const auto* body = std::get_if<ProgramPtr>(&value);
    if (body && mentions(**body, axis)) return true;
  }
  return false;
}

bool mentions(const Program& program, const std::string& axis) {
  for (const Type& t : program.types)
    if (std::find(t.varying.begin(), t.varying.end(), axis) != t.varying.end()) return true;
  for (const Eqn& eqn : program.eqns)
    if (mentions(eqn, axis)) return true;
  return false;
}

}  // namespace

BatchedProgram batch(const Program& original, const std::vector<bool>& batched_inputs, int64_t size,
                     const std::vector<bool>& force, const std::string& axis) {
  LOCKSTEP_CHECK(batched_inputs.size() == original.inputs.size());
  Program program = original;
  if (!axis.empty())
    for (Type& t : program.types) t.varying = without_axis_name(std::move(t.varying), axis);
  Builder b;
  Values map(program.types.size());
  std::vector<bool> batched(program.types.size(), false);
  auto with_axis = [&](const Type& t) {
    Type out = t;
    out.shape.insert(out.shape.begin(), size);
    return out;
  };
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const ValueId id = program.inputs[i];
    batched[id] = batched_inputs[i];
    map[id] = b.input(batched[id] ? with_axis(program.types[id]) : program.types[id]);
  }
  for (const Eqn& eqn : program.eqns) {
    Values in;
    std::vector<bool> which;
    bool any = false;
    for (ValueId id : eqn.in) {
      in.push_back(map[id]);
      which.push_back(batched[id]);
      any |= batched[id];
    }
    if (!any && (axis.empty() || !mentions(eqn, axis))) {
      b.copy(program, eqn, map);
      continue;
    }
    const Batch context{*eqn.op, eqn.attrs, in, which, size, b, kSubPrograms, axis};
    const auto [out, out_batched] = eqn.op->batch ? eqn.op->batch(context) : batch_by_rule(context);
    for (size_t k = 0; k < eqn.out.size(); ++k) {
      const Type& t = program.types[eqn.out[k]];
      LOCKSTEP_CHECK(out[k].type() == (out_batched[k] ? with_axis(t) : t),
                     "{}: batched result {} has type {}, expected a batch of {} of {}", eqn.op->name, k,
                     to_string(out[k].type()), size, to_string(t));
      map[eqn.out[k]] = out[k];
      batched[eqn.out[k]] = out_batched[k];
    }
  }
  BatchedProgram result;
  Values outputs;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const ValueId id = program.outputs[i];
    Value v = map[id];
    if (!batched[id] && i < force.size() && force[i]) {
      std::vector<int64_t> dims;
      for (int64_t d = 0; d < v.rank(); ++d) dims.push_back(d + 1);
      v = broadcast(v, with_axis(v.type()).shape, dims);
      result.batched.push_back(true);
    } else {
      result.batched.push_back(batched[id]);
    }
    outputs.push_back(v);
  }
  result.program = checked(b.take(outputs));
  return result;
}

}  // namespace lockstep
