// Definitions: which equation defines each value of a program, and where the values of nested programs come from. Rows
// use it to recognize what a program computes. Refers to the program; safe to use from any thread.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace lockstep {

class Definitions;

// The elements, in host memory, of an input of the program that is a constant of what is compiled; null: not known.
using InputContents = std::function<const void*(size_t input)>;

// A value of a program, or of a program that it is nested in.
struct DefinedValue {
  const Definitions* where = nullptr;
  ValueId id = 0;

  bool operator==(const DefinedValue&) const = default;
  // The equation that defines it; null for an input.
  const Eqn* eqn() const;
  const Type& type() const;
  // The elements of an input; null if they are not known. Dense, row-major.
  const void* contents() const;
  // Operand i of its equation.
  DefinedValue operand(size_t i) const;
};

class Definitions {
 public:
  explicit Definitions(const Program& program, const InputContents& contents = {});
  // Of the program in attribute `name` of `holder`, an equation of the program of `outer`.
  Definitions(const Program& program, const Definitions& outer, const Eqn& holder, std::string_view name);

  const Program& program() const { return program_; }

  // The value. An input of a nested program that always equals an operand is that operand.
  DefinedValue value(ValueId id) const;

  // Whether `from` is used to compute `to` and nothing else, and `to` has one use.
  bool only_leads_to(ValueId from, ValueId to) const;

 private:
  friend struct DefinedValue;

  const Program& program_;
  const InputContents contents_;
  std::vector<int32_t> defined_by_;  // by ValueId: index of the equation, or -1
  std::vector<int32_t> uses_;        // by ValueId: operands and outputs
  const Definitions* outer_ = nullptr;
  std::vector<int64_t> outer_id_;  // by ValueId: the value of the outer program that it equals, or -1
};

}  // namespace lockstep
