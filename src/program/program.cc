#include "program/program.h"

namespace lockstep {

std::vector<Type> Program::input_types() const {
  std::vector<Type> out;
  for (ValueId id : inputs) out.push_back(types[id]);
  return out;
}

std::vector<Type> Program::output_types() const {
  std::vector<Type> out;
  for (ValueId id : outputs) out.push_back(types[id]);
  return out;
}

}  // namespace lockstep
