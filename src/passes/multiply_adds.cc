#include "passes/passes.h"

namespace lockstep {
namespace {

double multiply_adds_of(const Program& p, const Eqn& eqn) {
  double out = 0;
  if (!eqn.op->multiply_adds) {
    for (const auto& [name, value] : eqn.attrs)
      if (const auto* body = std::get_if<ProgramPtr>(&value)) out += count_multiply_adds(**body);
    return out;
  }
  std::vector<Type> in, results;
  for (const ValueId id : eqn.in) in.push_back(p.types[id]);
  for (const ValueId id : eqn.out) results.push_back(p.types[id]);
  return eqn.op->multiply_adds(in, results, eqn.attrs, count_multiply_adds);
}

}  // namespace

double count_multiply_adds(const Program& p) {
  double out = 0;
  for (const Eqn& eqn : p.eqns) out += multiply_adds_of(p, eqn);
  return out;
}

}  // namespace lockstep
