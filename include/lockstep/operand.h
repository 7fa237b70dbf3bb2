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
  Operand(const Array& array, SourceLine at = SourceLine::here()) : Array(array), line_(at) {}        // NOLINT
  Operand(Array&& array, SourceLine at = SourceLine::here()) : Array(std::move(array)), line_(at) {}  // NOLINT
  // Numbers, real and complex.
  template <class T>
  requires(std::is_convertible_v<T, Array> && !std::is_base_of_v<Array, T>)
      Operand(T value, SourceLine at = SourceLine::here())  // NOLINT
      : Array(value), line_(at) {}
  // A copy says nothing of lines.
  Operand(const Operand& other) : Array(other), line_({}) {}
  Operand& operator=(const Operand&) = delete;

 private:
  detail::CallerLine line_;
};

template <>
struct detail::ArgumentFor<Operand> {
  using type = Array;
};

}  // namespace lockstep
