// Operand: an array as a function's argument, with the line of the call, which errors name:
//
//   train.cc:41: add: [7, 3] and [4] do not broadcast; ...
//
// Functions take `const Operand&` where they need an array. Arrays and numbers convert to it at the call. It is for
// parameters only: values are Arrays.
#pragma once

#include <type_traits>
#include <utility>

#include "lockstep/array.h"
#include "lockstep/detail/signature.h"
#include "lockstep/source_line.h"

namespace lockstep {

class Operand : public Array {
 public:
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

template <>
struct detail::ArgumentFor<Operand> {
  using type = Array;
};

}  // namespace lockstep
