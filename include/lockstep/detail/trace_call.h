// trace_call(): traces one call of a function on trees of arrays. For the templates of jit.h, grad.h and
// their like; not part of the public API. Traces belong to the calling thread.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/trace.h"
#include "lockstep/tree.h"

namespace lockstep::detail {

// Returns the tree with each array replaced by a new input of the trace.
template <class T>
T trace_inputs(Tracing& tracing, T tree) {
  for_each_array(tree, [&](Array& a) { a = tracing.input(a.type(), a); });
  return tree;
}

template <class T>
size_t array_count(const T& tree) {
  size_t n = 0;
  for_each_array(tree, [&](const Array&) { ++n; });
  return n;
}

template <class F, class... Args>
using ResultOf = std::decay_t<std::invoke_result_t<const F&, const Args&...>>;

template <class R>
struct TracedCall {
  Traced traced;
  R result;  // the tree the function returned; its arrays are the program's outputs
};

// Traces f(args...) on the types of the arguments. `what` names the transform in errors.
template <class F, class... Args>
auto trace_call(const char* what, const F& f, const Args&... args) {
  Tracing tracing(what);
  const std::tuple<Args...> inputs{trace_inputs(tracing, args)...};  // braces: inputs are made in order
  ResultOf<F, Args...> result = std::apply(f, inputs);
  const std::vector<Array> leaves = tree_leaves(result);
  return TracedCall<ResultOf<F, Args...>>{tracing.finish(leaves), std::move(result)};
}

}  // namespace lockstep::detail
