#include "base/check.h"

#include "program/op.h"

namespace lockstep {

void check(const Program& p) {
  std::vector<bool> defined(p.types.size(), false);
  auto define = [&](ValueId id, std::string_view by) {
    if (id >= p.types.size() || defined[id])
      throw_error("check: {} defines value {}, which is out of range or already defined", by, id);
    defined[id] = true;
  };
  for (ValueId id : p.inputs) define(id, "the input list");
  for (size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& eqn = p.eqns[i];
    std::vector<Type> in;
    for (ValueId id : eqn.in) {
      if (id >= p.types.size() || !defined[id])
        throw_error("check: equation {} ({}) uses value {} before it is defined", i, eqn.op->name, id);
      in.push_back(p.types[id]);
    }
    const std::vector<Type> out = infer_types(*eqn.op, in, eqn.attrs);
    if (out.size() != eqn.out.size())
      throw_error("check: equation {} ({}) has {} results, but the op has {}", i, eqn.op->name, eqn.out.size(),
                  out.size());
    for (size_t k = 0; k < out.size(); ++k) {
      if (eqn.out[k] < p.types.size() && p.types[eqn.out[k]] != out[k])
        throw_error("check: result {} of equation {} ({}) is declared {}, but derived {}", k, i, eqn.op->name,
                    to_string(p.types[eqn.out[k]]), to_string(out[k]));
      define(eqn.out[k], eqn.op->name);
    }
    for (const auto& [name, value] : eqn.attrs)
      if (const auto* sub = std::get_if<ProgramPtr>(&value)) check(**sub);
  }
  for (ValueId id : p.outputs)
    if (id >= p.types.size() || !defined[id]) throw_error("check: output value {} is not defined", id);
}

}  // namespace lockstep
