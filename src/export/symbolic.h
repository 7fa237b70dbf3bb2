// SymbolicProgram: a traced program whose extents are formulas in the number of examples, and of tokens of each. A
// program has fixed shapes; so the function is traced at several sizes, and the formulas follow from the differences.
// Plain values and pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "program/program.h"

namespace lockstep {

// constant + batch * n + tokens * t + both * n * t.
struct Extent {
  int64_t constant = 0, batch = 0, tokens = 0, both = 0;

  bool is_constant() const { return batch == 0 && tokens == 0 && both == 0; }
  int64_t at(int64_t n, int64_t t) const { return constant + batch * n + tokens * t + both * n * t; }
  bool operator==(const Extent&) const = default;
};
using Extents = std::vector<Extent>;

// "batch", "3", "2*batch*tokens + 1".
std::string to_string(const Extent& extent);

struct SymbolicEqn {
  Eqn eqn;                                 // as traced at the first size
  std::map<std::string, Extents> extents;  // of attributes that are integers or lists of them
};

struct SymbolicProgram {
  Program program;              // as traced at the first size
  std::vector<Extents> shapes;  // of every value, by ValueId
  std::vector<SymbolicEqn> eqns;
};

// Traces at several sizes. `tokens`: the largest number of tokens, of at least 5, if it is a variable; 0: it is not.
// Throws Error when an equation, or a number in it, depends on the sizes in another way.
using TraceAt = std::function<Program(int64_t batch, int64_t tokens)>;
SymbolicProgram trace_symbolic(const TraceAt& trace, int64_t tokens = 0);

}  // namespace lockstep
