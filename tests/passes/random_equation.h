// What random programs are made of, beside the ops of their generator (random_program.h). For tests.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "rows/eager.h"

namespace lockstep {

struct RandomProgram {
  Program program;
  std::vector<double> error;  // per output: the allowed difference; 0: exact
  HostArrays inputs;
  std::vector<HostArrays> examples =
      {};                           // inputs for a batch, or for the devices along an axis; the first are `inputs`
  std::vector<bool> wanted = {};    // inputs to differentiate with respect to
  std::vector<size_t> source = {};  // per input: the input that it is computed from, or itself
};

// An equation to insert into a program.
struct RandomEquation {
  const Op* op;
  Attrs attrs;
  std::vector<Type> types;          // of the operands
  std::vector<HostArrays> in = {};  // the operands of each example
  std::vector<bool> wanted = {};    // operands to differentiate with respect to
  std::vector<bool> free = {};      // operands that may be any numbers in [-2, 2]
  std::vector<size_t> source = {};
  bool ties = false;  // operands have equal elements: results that depend on their order are not differentiable
};

// Evaluates a program for each example.
using Evaluate = std::function<std::vector<HostArrays>(const Program&, const std::vector<HostArrays>&)>;

inline std::vector<HostArrays> eager_each(const Program& p, const std::vector<HostArrays>& examples) {
  std::vector<HostArrays> out;
  for (const HostArrays& inputs : examples) out.push_back(eager(p, inputs));
  return out;
}

struct RandomOptions {
  bool smooth = false;  // all floats are f64, and no non-differentiable op is applied to an inexact value
  std::function<RandomEquation(std::mt19937&)> more = {};  // makes the equations of some steps
  int more_every = 6;                                      // one step in N
  size_t examples = 1;
  std::string axis = {};  // the examples are the devices along this mesh axis, over which some values vary
  Evaluate evaluate = eager_each;
};

}  // namespace lockstep
