// Trace: a program being written by the operations of one thread.
#pragma once

#include <map>
#include <utility>

#include "lockstep/trace.h"
#include "program/builder.h"

namespace lockstep::detail {

class Trace {
 public:
  explicit Trace(const char* what);

  // The innermost trace of this thread, or null.
  static Trace* current();
  // The trace of that id when it is open on this thread, or null.
  static Trace* find(uint64_t id);

  const char* what() const { return what_; }
  uint64_t id() const { return id_; }
  Builder& builder() { return builder_; }

  Value input(const Type&);
  // The value that stands for an array: itself, a captured one, or a constant of this dtype for a number.
  Value lift(const Array&, DType literal_dtype);
  Value lift(const Array& array) { return lift(array, array.dtype()); }
  Array wrap(Value);

  Traced finish(std::span<const Array> outputs);

  // Throws Error: an array of this type belongs to a trace that has ended.
  [[noreturn]] static void throw_escaped(const char* wanted_by, const Type& type);

 private:
  const char* what_;
  uint64_t id_;
  Builder builder_;
  Arrays captures_;
  std::map<std::pair<uint64_t, uint64_t>, Value> captured_;  // by trace and value, or by 0 and the node's address
};

}  // namespace lockstep::detail
