// Builder: builds a Program, one equation at a time. Value: a handle to a value of that program. Rows of ops,
// gradients and batching rules are written with Values. A Builder belongs to one thread.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "program/program.h"

namespace lockstep {

class Builder;

// A Value may be absent (operator bool is false): a zero cotangent, or an omitted operand.
class Value {
 public:
  Value() = default;
  Value(Builder* builder, ValueId id) : builder_(builder), id_(id) {}

  explicit operator bool() const { return builder_ != nullptr; }
  Builder& builder() const { return *builder_; }
  ValueId id() const { return id_; }
  const Type& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int64_t rank() const { return type().rank(); }
  bool operator==(const Value&) const = default;

 private:
  Builder* builder_ = nullptr;
  ValueId id_ = 0;
};
using Values = std::vector<Value>;

class Builder {
 public:
  Builder() = default;
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // Adds an input.
  Value input(Type);

  // Adds an equation; its result types are derived from the op's row. Where some operands vary over mesh axes and others
  // do not, inserts `pvary` before it. Throws Error when the operands do not fit. Defined in ops/emit.cc.
  Values emit(const Op&, std::span<const Value> in, Attrs = {});

  // Adds an equation with known result types (copied from a checked program).
  Values emit_typed(const Op&, std::span<const Value> in, Attrs, Types out);

  // Copies one equation of a program. `map` holds this builder's value for each of the program's values; the
  // results are added to it.
  void copy(const Program& from, const Eqn&, Values& map);

  // Copies a program's equations with `args` as its inputs. Returns its outputs.
  Values inline_program(const Program&, std::span<const Value> args);

  // The equation that defines a value; null for an input. Valid until the next equation is added.
  const Eqn* definition(Value) const;

  // The reference stays valid while equations are added.
  const Type& type(ValueId id) const { return types_[id]; }

  // The current program with these outputs. The builder stays usable.
  Program finish(std::span<const Value> outputs) const;
  // Same, but moves the program out and leaves the builder empty; cheaper.
  Program take(std::span<const Value> outputs);

 private:
  Program program_;                  // without its types
  std::deque<Type> types_;           // by ValueId
  std::vector<int32_t> defined_by_;  // by ValueId: index of the equation, or -1
};

inline const Type& Value::type() const { return builder_->type(id_); }

// Adds an equation with one result to the builder of the first operand. Defined in ops/emit.cc.
Value emit(const Op&, std::initializer_list<Value> in, Attrs = {});
Value emit(const Op&, std::span<const Value> in, Attrs = {});

}  // namespace lockstep
