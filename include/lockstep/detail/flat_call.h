// Calls of functions on trees as calls on lists of arrays, so that the transforms themselves are not templates. Not part of
// the public API.
#pragma once

#include <utility>

#include "lockstep/detail/trace_call.h"

namespace lockstep::detail {

template <class... Args>
FlatTrees flat_arguments(const Args&... args) {
  return FlatTrees({TreeRef(args)...});
}

// The elements of a tuple or pair; any other tree is one element.
template <class R>
FlatTrees flat_result(const R& result) {
  FlatTrees out;
  add_result(out, result);
  return out;
}

// The arrays of all arguments, in order.
template <class... Args>
Arrays leaves_of(const Args&... args) {
  return leaves_of_trees({TreeRef(args)...});
}

// Returns `tree` with its arrays replaced by those from `next` on, which it advances.
template <class T>
T replace_arrays(T tree, const Array*& next) {
  assign_arrays(tree, next);
  return tree;
}

// Calls transform(arguments, f on arrays), which returns the arrays of the result, and makes a result of f from them.
template <class Transform, class F, class... Args>
auto flat_call(const Transform& transform, const F& f, const Args&... args) {
  ResultSlot<ResultOf<F, Args...>> result;
  const Arrays arrays = transform(TreeRefs{TreeRef(args)...}, FlatFunction(on_arrays(result, f, args...)));
  return result.take(arrays.data());
}

}  // namespace lockstep::detail
