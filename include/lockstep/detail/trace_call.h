// trace_call(): traces one call of a function on trees of arrays. For the templates of jit.h, grad.h and
// their like; not part of the public API. Traces belong to the calling thread.
#pragma once

#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/trace.h"
#include "lockstep/tree.h"

namespace lockstep::detail {

// The arrays of several trees, in order, with their paths.
struct FlatTrees {
  Arrays arrays;
  std::vector<std::string> paths;  // within its tree
  std::vector<size_t> counts;      // arrays of each tree
  std::vector<TreeRef> trees;
  std::vector<TreeRef> whole;      // of a result: the tree that consists of `trees`

  FlatTrees();
  FlatTrees(TreeRefs);  // NOLINT: implicit
  FlatTrees(const FlatTrees&);
  FlatTrees(FlatTrees&&) noexcept;
  FlatTrees& operator=(const FlatTrees&);
  FlatTrees& operator=(FlatTrees&&) noexcept;
  ~FlatTrees();
  void add(TreeRef tree);
  void add_result(TreeRef result, TreeRefs elements);
};

// Adds the elements of a tuple or pair; any other tree is one element.
template <class R>
void add_result(FlatTrees& out, const R& result) {
  if constexpr (is_tuple<R>)
    [&]<size_t... I>(std::index_sequence<I...>) { out.add_result(result, {TreeRef(std::get<I>(result))...}); }
    (std::make_index_sequence<std::tuple_size_v<R>>{});
  else
    out.add_result(result, {result});
}

template <class F, class... Args>
using ResultOf = std::decay_t<std::invoke_result_t<const F&, const Args&...>>;

// Refers to a callable that takes a function's arrays, from `next` on, and adds the elements of its result.
class FlatFunction {
 public:
  template <class T>
  FlatFunction(const T& f)  // NOLINT: implicit, so that a CallOn can be passed
      : f_(&f), call_([](const void* g, const Array* next, FlatTrees& out) { (*static_cast<const T*>(g))(next, out); }) {}
  FlatTrees operator()(const Array* arrays) const;

 private:
  const void* f_;
  void (*call_)(const void*, const Array*, FlatTrees&);
};

// The result of a function, once it has been called.
template <class R>
class ResultSlot {
 public:
  ResultSlot() {}
  ResultSlot(const ResultSlot&) = delete;
  ResultSlot& operator=(const ResultSlot&) = delete;
  ~ResultSlot() { clear(); }

  template <class Make>
  void set(const Make& make) {
    clear();
    ::new (static_cast<void*>(&value_)) R(make());
    full_ = true;
  }
  R& get() { return value_; }
  const R& get() const { return value_; }
  // The result with its arrays replaced by those from `next` on.
  R take(const Array* next) { return take_and_advance(next); }
  R take_and_advance(const Array*& next) {
    assign_arrays(value_, next);
    return std::move(value_);
  }

 private:
  void clear() {
    if (full_) value_.~R();
    full_ = false;
  }
  union {
    R value_;
  };
  bool full_ = false;
};

// f as a function of arrays, for a FlatFunction: calls it on trees like these arguments and keeps the result. All of them
// must outlive it.
template <class R, class F, class... Args>
auto on_arrays(ResultSlot<R>& result, const F& f, const Args&... args) {
  return [&](const Array* next, FlatTrees& out) {
    const auto call = [&](Args... trees) {
      (assign_arrays(trees, next), ...);
      result.set([&]() -> decltype(auto) { return f(std::as_const(trees)...); });
    };
    call(args...);
    add_result(out, result.get());
  };
}

// Traces a function on the types of these arrays. `what` names the transform in errors.
Traced trace_flat(const char* what, const Arrays& args, const FlatFunction& f);
inline Traced trace_flat(const char* what, TreeRefs args, const FlatFunction& f) {
  return trace_flat(what, leaves_of_trees(args), f);
}

// Its program, as text.
std::string text_of_function(TreeRefs args, const FlatFunction& f);
Arrays remat_flat(TreeRefs args, const FlatFunction& f, const std::string& policy);

template <class R>
struct TracedCall {
  Traced traced;
  R result;  // the tree the function returned; its arrays are the program's outputs
};

// Traces f(args...) on the types of the arguments. `what` names the transform in errors.
template <class F, class... Args>
auto trace_call(const char* what, const F& f, const Args&... args) {
  ResultSlot<ResultOf<F, Args...>> result;
  Traced traced = trace_flat(what, {TreeRef(args)...}, on_arrays(result, f, args...));
  return TracedCall<ResultOf<F, Args...>>{std::move(traced), std::move(result.get())};
}

}  // namespace lockstep::detail
