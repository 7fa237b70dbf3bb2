// Program: a traced function as a flat, typed, single-assignment list of equations. Values are numbered by
// small integers. A plain value: can be copied, compared, printed, parsed and hashed. The grammar is in
// docs/reference/programs.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/shape.h"
#include "lockstep/source_line.h"
#include "program/attrs.h"

namespace lockstep {

struct Op;
using ValueId = uint32_t;

// An equation: one application of an op.
struct Eqn {
  const Op* op = nullptr;
  Attrs attrs;
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  SourceLine at = {};  // of the user's program, for messages; its file is empty if unknown

  // Equations are equal wherever they come from.
  bool operator==(const Eqn& other) const {
    return op == other.op && attrs == other.attrs && in == other.in && out == other.out;
  }
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

// Canonical text: values are numbered in order of definition. Two programs print alike exactly if they differ
// at most in the numbering of values.
std::string print(const Program&);

// Parses a text; ops are looked up in `ops`. Checks types. Throws Error with the line and column of a syntax
// error.
Program parse(std::string_view text, std::span<const Op* const> ops);

// Derives every type again from the ops' rows. Throws Error naming the first equation that does not match.
void check(const Program&);

// Equal for programs that print alike; stable between runs and machines.
uint64_t hash(const Program&);

}  // namespace lockstep
