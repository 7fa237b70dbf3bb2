// Program: a traced function as a flat, typed, single-assignment list of equations, indexed by small integers. A plain
// value: copied, compared, printed, parsed, hashed. Its grammar is in docs/reference/programs.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/shape.h"
#include "program/attrs.h"

namespace lockstep {

struct Op;
using ValueId = uint32_t;

struct Eqn {
  const Op* op = nullptr;
  Attrs attrs;
  std::vector<ValueId> in;
  std::vector<ValueId> out;

  bool operator==(const Eqn&) const = default;
};

struct Program {
  std::vector<Type> types;  // of every value, by ValueId
  std::vector<ValueId> inputs;
  std::vector<Eqn> eqns;
  std::vector<ValueId> outputs;

  std::vector<Type> input_types() const;
  std::vector<Type> output_types() const;
  bool operator==(const Program&) const = default;
};

// Canonical text: values are numbered in order of definition, so two programs print alike exactly when they are the
// same up to the numbering of values.
std::string print(const Program&);

// The program a text describes, its ops looked up in `ops`. Types are checked. Throws Error with the line and column of
// what it cannot read.
Program parse(std::string_view text, std::span<const Op* const> ops);

// Re-derives every type from the ops' own rules. Throws Error naming the first equation that does not hold.
void check(const Program&);

// Equal for programs that print alike; stable between runs and machines.
uint64_t hash(const Program&);

}  // namespace lockstep
