#include "program/builder.h"

#include <iterator>

#include "base/check.h"
#include "program/op.h"

namespace lockstep {

Value Builder::input(Type type) {
  const auto id = static_cast<ValueId>(types_.size());
  types_.push_back(std::move(type));
  program_.inputs.push_back(id);
  defined_by_.push_back(-1);
  return {this, id};
}

Values Builder::emit_typed(const Op& op, std::span<const Value> in, Attrs attrs, Types out) {
  Eqn eqn{&op, std::move(attrs), {}, {}, detail::CallerLine::current()};
  eqn.in.reserve(in.size());
  for (const Value& v : in) {
    LOCKSTEP_CHECK(v && &v.builder() == this, "{}: an operand belongs to another builder", op.name);
    eqn.in.push_back(v.id());
  }
  Values values;
  values.reserve(out.size());
  for (const Type& t : out) {
    const auto id = static_cast<ValueId>(types_.size());
    types_.push_back(t);
    defined_by_.push_back(static_cast<int32_t>(program_.eqns.size()));
    eqn.out.push_back(id);
    values.emplace_back(this, id);
  }
  program_.eqns.push_back(std::move(eqn));
  return values;
}

void Builder::copy(const Program& from, const Eqn& eqn, Values& map) {
  Values in;
  std::vector<Type> types;
  in.reserve(eqn.in.size());
  for (ValueId id : eqn.in) in.push_back(map[id]);
  for (ValueId id : eqn.out) types.push_back(from.types[id]);
  const detail::CallerLine line(eqn.at);
  const Values out = emit_typed(*eqn.op, in, eqn.attrs, types);
  for (size_t i = 0; i < out.size(); ++i) map[eqn.out[i]] = out[i];
}

Values Builder::inline_program(const Program& program, std::span<const Value> args) {
  LOCKSTEP_CHECK(args.size() == program.inputs.size(), "{} arguments for {} inputs", args.size(),
                 program.inputs.size());
  Values map(program.types.size());
  for (size_t i = 0; i < args.size(); ++i) map[program.inputs[i]] = args[i];
  for (const Eqn& eqn : program.eqns) copy(program, eqn, map);
  Values outputs;
  for (ValueId id : program.outputs) outputs.push_back(map[id]);
  return outputs;
}

const Eqn* Builder::definition(Value v) const {
  const int32_t i = defined_by_[v.id()];
  return i < 0 ? nullptr : &program_.eqns[static_cast<size_t>(i)];
}

Program Builder::finish(std::span<const Value> outputs) const {
  Program p = program_;
  p.types.assign(types_.begin(), types_.end());
  for (const Value& v : outputs) p.outputs.push_back(v.id());
  return p;
}

Program Builder::take(std::span<const Value> outputs) {
  Program p = std::exchange(program_, {});
  p.types.assign(std::make_move_iterator(types_.begin()), std::make_move_iterator(types_.end()));
  types_.clear();
  defined_by_.clear();
  for (const Value& v : outputs) p.outputs.push_back(v.id());
  return p;
}

}  // namespace lockstep
