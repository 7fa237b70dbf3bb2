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

// A batch of `size` values of this type.
Type batched_type(Type type, int64_t size) {
  type.shape.insert(type.shape.begin(), size);
  return type;
}

// Repeats `value` along a new first dimension.
Value repeated(Value value, int64_t size) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < value.rank(); ++d) dims.push_back(d + 1);
  return broadcast(value, batched_type(value.type(), size).shape, dims);
}

// Builds the batched program, equation by equation. `axis` is the mesh axis that the batch stands for, or empty.
class ProgramBatcher {
 public:
  ProgramBatcher(const Program& program, int64_t size, const std::string& axis)
      : program_(program),
        size_(size),
        axis_(axis),
        map_(program.types.size()),
        batched_(program.types.size(), false) {}

  void add_inputs(const std::vector<bool>& batched_inputs) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const ValueId id = program_.inputs[i];
      batched_[id] = batched_inputs[i];
      map_[id] = builder_.input(type_of(id));
    }
  }

  void add(const Eqn& eqn) {
    const detail::CallerLine line(eqn.at);
    Values in;
    std::vector<bool> which;
    bool any = false;
    for (ValueId id : eqn.in) {
      in.push_back(map_[id]);
      which.push_back(batched_[id]);
      any |= batched_[id];
    }
    if (!any && (axis_.empty() || !mentions(eqn, axis_))) {
      builder_.copy(program_, eqn, map_);
      return;
    }
    const Batch context{*eqn.op, eqn.attrs, in, which, size_, builder_, kSubPrograms, axis_};
    const auto [out, out_batched] = eqn.op->batch ? eqn.op->batch(context) : batch_by_rule(context);
    for (size_t k = 0; k < eqn.out.size(); ++k) {
      const ValueId id = eqn.out[k];
      map_[id] = out[k];
      batched_[id] = out_batched[k];
      LOCKSTEP_CHECK(out[k].type() == type_of(id), "{}: batched result {} has type {}, expected a batch of {} of {}",
                     eqn.op->name, k, to_string(out[k].type()), size_, to_string(program_.types[id]));
    }
  }

  // Outputs with `force` are batched, even if their value is the same for the whole batch.
  BatchedProgram take(const std::vector<bool>& force) {
    BatchedProgram result;
    Values outputs;
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      const ValueId id = program_.outputs[i];
      const bool repeat = !batched_[id] && i < force.size() && force[i];
      outputs.push_back(repeat ? repeated(map_[id], size_) : map_[id]);
      result.batched.push_back(batched_[id] || repeat);
    }
    result.program = checked(builder_.take(outputs));
    return result;
  }

 private:
  // The type of a value in the batched program.
  Type type_of(ValueId id) const { return batched_[id] ? batched_type(program_.types[id], size_) : program_.types[id]; }

  const Program& program_;
  const int64_t size_;
  const std::string& axis_;
  Builder builder_;
  Values map_;                 // the value of the batched program for each value of the program
  std::vector<bool> batched_;  // whether it is batched
};

}  // namespace

BatchedProgram batch(const Program& original, const std::vector<bool>& batched_inputs, int64_t size,
                     const std::vector<bool>& force, const std::string& axis) {
  LOCKSTEP_CHECK(batched_inputs.size() == original.inputs.size());
  Program program = original;
  if (!axis.empty())
    for (Type& t : program.types) t.varying = without_axis_name(std::move(t.varying), axis);
  ProgramBatcher batcher(program, size, axis);
  batcher.add_inputs(batched_inputs);
  for (const Eqn& eqn : program.eqns) batcher.add(eqn);
  return batcher.take(force);
}

}  // namespace lockstep
