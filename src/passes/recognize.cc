// Recognition: the rows with the column `recognize` are asked for each equation, also in nested programs.
#include "ops/ops.h"
#include "passes/passes.h"
#include "program/definitions.h"

namespace lockstep {
namespace {

std::vector<const Op*> recognizing_rows() {
  std::vector<const Op*> rows;
  for (const Op* op : all_ops())
    if (op->recognize) rows.push_back(op);
  return rows;
}

Value recognized_result(const Recognition& r) {
  static const std::vector<const Op*> rows = recognizing_rows();
  if (r.eqn.out.size() != 1) return {};
  for (const Op* op : rows)
    if (const Value found = op->recognize(r)) return found;
  return {};
}

// Whether a row may recognize something after simplification. Much cheaper than that.
bool may_recognize(const Program& p) {
  const Definitions definitions(p);
  Builder unused;
  const Values none;
  for (const Eqn& eqn : p.eqns) {
    if (recognized_result({definitions, eqn, unused, none})) return true;
    for (const auto& [name, value] : eqn.attrs)
      if (const auto* body = std::get_if<ProgramPtr>(&value); body && may_recognize(**body)) return true;
  }
  return false;
}

// The program with all that is recognized, or null if nothing is. `simple` is simplified.
ProgramPtr recognized(const Program& simple, const Definitions& definitions);

// The attributes with their programs' recognized parts replaced; `any` is set if there are some.
Attrs recognized_programs(const Eqn& eqn, const Definitions& outer, bool& any) {
  Attrs attrs = eqn.attrs;
  for (const auto& [name, value] : eqn.attrs) {
    const auto* body = std::get_if<ProgramPtr>(&value);
    if (!body || !may_recognize(**body)) continue;
    const Program simple = simplify(**body);
    if (ProgramPtr found = recognized(simple, Definitions(simple, outer, eqn, name))) {
      attrs.set(name, std::move(found));
      any = true;
    }
  }
  return attrs;
}

ProgramPtr recognized(const Program& simple, const Definitions& definitions) {
  Builder b;
  Values map(simple.types.size());
  for (ValueId id : simple.inputs) map[id] = b.input(simple.types[id]);
  bool any = false;
  for (const Eqn& eqn : simple.eqns) {
    if (const Value found = recognized_result({definitions, eqn, b, map})) {
      map[eqn.out[0]] = found;
      any = true;
      continue;
    }
    bool inside = false;
    Eqn copy = eqn;
    copy.attrs = recognized_programs(eqn, definitions, inside);
    b.copy(simple, inside ? copy : eqn, map);
    any |= inside;
  }
  if (!any) return nullptr;
  Values outputs;
  for (ValueId id : simple.outputs) outputs.push_back(map[id]);
  return std::make_shared<const Program>(checked(simplify(b.take(outputs))));
}

}  // namespace

Program recognize(const Program& program, const InputContents& contents) {
  if (!may_recognize(program)) return program;
  const Program simple = simplify(program);
  const ProgramPtr found = recognized(simple, Definitions(simple, contents));
  return found ? *found : program;
}

}  // namespace lockstep
