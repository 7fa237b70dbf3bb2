// && and || of two arrays do not compile. Not part of the public API.
#pragma once

#include <type_traits>

#include "lockstep/array.h"

namespace lockstep {
namespace detail {
template <class A, class B>
inline constexpr bool are_arrays = std::is_same_v<A, Array>&& std::is_same_v<B, Array>;
}  // namespace detail

// C++ evaluates both operands of an overloaded && and ||, and as conditions they need a single element that is known while
// the function is traced. So neither meaning is the obvious one.
template <class A, class B>
requires detail::are_arrays<A, B>
bool operator&&(const A&, const B&) {
  static_assert(!detail::are_arrays<A, B>,
                "&& of two arrays: use & (or logical_and) for each element; for two conditions, bool(a) && bool(b)");
  return false;
}
template <class A, class B>
requires detail::are_arrays<A, B>
bool operator||(const A&, const B&) {
  static_assert(!detail::are_arrays<A, B>,
                "|| of two arrays: use | (or logical_or) for each element; for two conditions, bool(a) || bool(b)");
  return false;
}

}  // namespace lockstep
