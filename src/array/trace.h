// Trace: a program being recorded from the operations of one thread. Belongs to that thread.
#pragma once

#include <map>
#include <utility>

#include "lockstep/trace.h"
#include "program/builder.h"

namespace lockstep::detail {

class Trace {
 public:
  // `what` names the transform in errors. It must outlive the trace.
  explicit Trace(const char* what);

  // The innermost trace of this thread, or null.
  static Trace* current();
  // The open trace of this thread with this id, or null.
  static Trace* find(uint64_t id);

  const char* what() const { return what_; }
  uint64_t id() const { return id_; }
  Builder& builder() { return builder_; }

  Value input(const Type&);
  // The value that represents an array: its own value, a captured input, or for a number a constant of
  // `literal_dtype`. Throws Error for an array that cannot be read or that belongs to an ended trace.
  Value lift(const Array&, DType literal_dtype);
  Value lift(const Array& array) { return lift(array, array.dtype()); }
  // A traced array for a value of this trace.
  Array wrap(Value);

  // Returns the program with these outputs. The trace is used up.
  Traced finish(std::span<const Array> outputs);

  // Throws Error: the array of this node belongs to a trace that has ended, or that is open on another thread.
  [[noreturn]] static void throw_escaped(const char* wanted_by, const Node& node);

 private:
  const char* what_;
  uint64_t id_;
  Builder builder_;
  Arrays captures_;
  std::map<std::pair<uint64_t, uint64_t>, Value> captured_;  // key: {trace, value}, or {0, node address}
};

// While it exists, recognize() does or does not take place in what this thread compiles and differentiates.
class RecognitionScope {
 public:
  explicit RecognitionScope(bool enabled);
  ~RecognitionScope();
  RecognitionScope(const RecognitionScope&) = delete;
  RecognitionScope& operator=(const RecognitionScope&) = delete;

 private:
  const bool before_;
};

// The program after the pass recognize(), unless a scope disables it.
ProgramPtr recognized(const Traced&);

}  // namespace lockstep::detail
