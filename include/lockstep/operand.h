// Operand: an array as a function's argument, with the line of the call, which errors name:
//
//   train.cc:41: add: [7, 3] and [4] do not broadcast; ...
//
// Functions take `const Operand&` where they need an array, and `const Operands&` where they need several as one
// argument. Arrays and numbers convert to them at the call. They are for parameters only: values are Arrays.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/detail/signature.h"
#include "lockstep/source_line.h"

namespace lockstep {

class Operand : public Array {
 public:
  Operand() : line_({}) {}  // of an argument that is left out
  // Not inline, as with Array.
  Operand(const Array& array, SourceLine at = SourceLine::here());  // NOLINT
  Operand(Array&& array, SourceLine at = SourceLine::here());       // NOLINT
  // Numbers, real and complex.
  template <class T>
  requires(std::is_convertible_v<T, Array> && !std::is_base_of_v<Array, T>)
      Operand(T value, SourceLine at = SourceLine::here())  // NOLINT
      : Operand(node_of(value), at) {}
  // A copy says nothing of lines.
  Operand(const Operand& other);
  ~Operand();
  Operand& operator=(const Operand&) = delete;

 private:
  Operand(detail::Node* node, SourceLine at);
  template <class T>
  static detail::Node* node_of(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || detail::ComplexNumber<T>)
      return detail::number_node(value);
    else
      return detail::shared_node(Array(value));
  }

  detail::CallerLine line_;
};

// Arrays as one argument: `concatenate({a, b})`.
class Operands : public std::vector<Array> {
 public:
  Operands(std::initializer_list<Array> arrays, SourceLine at = SourceLine::here());
  Operands(const vector& arrays, SourceLine at = SourceLine::here());  // NOLINT
  Operands(vector&& arrays, SourceLine at = SourceLine::here());       // NOLINT
  Operands(const Operands& other);
  ~Operands();
  Operands& operator=(const Operands&) = delete;

 private:
  detail::CallerLine line_;
};

template <>
struct detail::ArgumentFor<Operands> {
  using type = std::vector<Array>;
};
template <>
struct detail::ArgumentFor<Operand> {
  using type = Array;
};

}  // namespace lockstep
