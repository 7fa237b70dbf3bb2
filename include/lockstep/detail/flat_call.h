// Calls of functions on trees as calls on lists of arrays, so that the transforms themselves are not templates. Not part of
// the public API.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/detail/trace_call.h"

namespace lockstep::detail {

// The arrays of several trees, in order, with their paths.
struct FlatTrees {
  Arrays arrays;
  std::vector<std::string> paths;  // within its tree
  std::vector<size_t> counts;      // arrays of each tree

  template <class T>
  void add(const T& tree) {
    const size_t before = arrays.size();
    for_each_path(tree, [this](const std::string& path, const Array& a) {
      arrays.push_back(a);
      paths.push_back(path);
    });
    counts.push_back(arrays.size() - before);
  }
};

template <class... Args>
FlatTrees flat_arguments(const Args&... args) {
  FlatTrees out;
  (out.add(args), ...);
  return out;
}

// The elements of a tuple or pair; any other tree is one element.
template <class R>
FlatTrees flat_result(const R& result) {
  FlatTrees out;
  if constexpr (is_tuple<R>)
    std::apply([&](const auto&... each) { (out.add(each), ...); }, result);
  else
    out.add(result);
  return out;
}

// Refers to a callable that takes a function's arrays and returns those of its result.
class FlatFunction {
 public:
  template <class T>
  FlatFunction(const T& f)  // NOLINT: implicit, so that a lambda can be passed
      : f_(&f), call_([](const void* g, const Array* arrays) { return (*static_cast<const T*>(g))(arrays); }) {}
  FlatTrees operator()(const Array* arrays) const { return call_(f_, arrays); }

 private:
  const void* f_;
  FlatTrees (*call_)(const void*, const Array*);
};

// The arrays of all arguments, in order.
template <class... Args>
Arrays leaves_of(const Args&... args) {
  Arrays out;
  (for_each_array(args, [&](const Array& a) { out.push_back(a); }), ...);
  return out;
}

// Returns `tree` with its arrays replaced by those from `next` on, which it advances.
template <class T>
T replace_arrays(T tree, const Array*& next) {
  for_each_array(tree, [&](Array& a) { a = *next++; });
  return tree;
}

// Calls transform(arguments, f on arrays), which returns the arrays of the result, and makes a result of f from them.
template <class Transform, class F, class... Args>
auto flat_call(const Transform& transform, const F& f, const Args&... args) {
  std::optional<ResultOf<F, Args...>> result;
  const auto on_arrays = [&](const Array* next) {
    const std::tuple<Args...> inputs{replace_arrays(args, next)...};  // braces: in order
    result.emplace(std::apply(f, inputs));
    return flat_result(*result);
  };
  const Arrays arrays = transform(flat_arguments(args...), FlatFunction(on_arrays));
  const Array* next = arrays.data();
  return replace_arrays(std::move(*result), next);
}

}  // namespace lockstep::detail
