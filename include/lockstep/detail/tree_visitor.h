// Visitors of trees (tree.h): how transforms walk the arrays of their arguments and results. Not part of the
// public API. Pure functions, safe to call from any thread.
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/detail/fields.h"
#include "lockstep/detail/tree_check.h"
#include "lockstep/detail/tree_traits.h"

namespace lockstep::detail {

// The callbacks of a visitor; array(a) must be added. size(n) gets the number of elements of a container,
// key(k) a key of a map. enter(name) and leave() surround each child. state(a) precedes array(a) for an nn::State.
// A visitor of trees with other leaves than arrays has a type Leaf and a function leaf(x).
struct VisitorBase {
  template <class T>
  void static_value(const T&) {}
  template <class T>
  void key(const T&) {}
  void size(size_t) {}
  void state(const Array&) {}
  template <class Name>
  void enter(const Name&) {}
  void leave() {}
};

template <class Visitor, class T>
inline constexpr bool is_leaf_of = false;
template <class Visitor, class T>
requires requires { typename Visitor::Leaf; }
inline constexpr bool is_leaf_of<Visitor, T> = std::is_same_v<typename Visitor::Leaf, T>;

// Visits a tree in order. T may be const.
template <class T, class Visitor>
void visit_tree(T& tree, Visitor& v) {
  using U = std::remove_const_t<T>;
  if constexpr (is_leaf_of<Visitor, U>) {
    v.leaf(tree);
  } else if constexpr (is_tree_leaf<U>) {
    // of a tree that is not visited for these leaves
  } else if constexpr (std::is_same_v<U, Array>) {
    v.array(tree);
  } else if constexpr (std::is_same_v<U, nn::State>) {
    v.state(tree);
    v.array(static_cast<std::conditional_t<std::is_const_v<T>, const Array, Array>&>(tree));
  } else if constexpr (is_static_value<U>) {
    v.static_value(tree);
  } else if constexpr (is_vector<U> || is_std_array<U>) {
    v.size(tree.size());
    size_t i = 0;
    if constexpr (std::is_same_v<U, std::vector<bool>>) {
      for (bool b : tree) v.static_value(b);
    } else {
      for (auto& child : tree) {
        v.enter(i++);
        visit_tree(child, v);
        v.leave();
      }
    }
  } else if constexpr (is_tuple<U>) {
    [&]<size_t... I>(std::index_sequence<I...>) { ((v.enter(I), visit_tree(std::get<I>(tree), v), v.leave()), ...); }
    (std::make_index_sequence<std::tuple_size_v<U>>{});
  } else if constexpr (is_map<U>) {
    v.size(tree.size());
    for (auto& [key, child] : tree) {
      v.key(key);
      v.enter(key);
      visit_tree(child, v);
      v.leave();
    }
  } else if constexpr (is_optional<U>) {
    v.size(tree.has_value());
    if (tree) visit_tree(*tree, v);
  } else {
    static_assert(check_tree<U>);
    auto fields = tie_fields(tree);
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((v.enter(field_name<U, I>()), visit_tree(std::get<I>(fields), v), v.leave()), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(fields)>>{});
  }
}

// Calls a function for every leaf. The function's type is erased, so that each tree type is compiled once, not once for
// each function. Trees are visited as const; `call` may cast that away if the tree is not.
struct EachArray : VisitorBase {
  void* function;
  void (*call)(void* function, const Array& leaf);
  EachArray(void* f, void (*c)(void*, const Array&)) : function(f), call(c) {}
  void array(const Array& a) { call(function, a); }
};

template <class T>
using LeafOfTree = std::conditional_t<std::is_const_v<T>, const Array, Array>;

// Calls f(Array&) or f(const Array&) for every leaf, in order.
template <class T, class F>
void for_each_array(T& tree, F&& f) {
  using Function = std::remove_reference_t<F>;
  EachArray visitor(const_cast<void*>(static_cast<const void*>(std::addressof(f))), [](void* function, const Array& a) {
    (*static_cast<Function*>(function))(const_cast<LeafOfTree<T>&>(a));
  });
  visit_tree(std::as_const(tree), visitor);
}

// Keeps track of the path of the current child.
struct PathVisitor : VisitorBase {
  std::string path;
  std::vector<size_t> lengths;
  void enter(std::string_view name) { push(std::string(name)); }
  template <class N>
  requires(std::is_arithmetic_v<N> || std::is_enum_v<N>) void enter(N n) {
    push(std::to_string(static_cast<int64_t>(n)));
  }
  void leave() {
    path.resize(lengths.back());
    lengths.pop_back();
  }

 private:
  void push(const std::string& name) {
    lengths.push_back(path.size());
    if (!path.empty()) path += '/';
    path += name;
  }
};

struct EachLeaf : PathVisitor {
  void* function;
  void (*call)(void* function, const std::string& path, const Array& leaf, bool is_state);
  bool is_state = false;
  EachLeaf(void* f, void (*c)(void*, const std::string&, const Array&, bool)) : function(f), call(c) {}
  void state(const Array&) { is_state = true; }
  void array(const Array& a) { call(function, path, a, std::exchange(is_state, false)); }
};

// Calls f(path, array) for every leaf, in order.
template <class T, class F>
void for_each_path(T& tree, F&& f) {
  using Function = std::remove_reference_t<F>;
  EachLeaf visitor(const_cast<void*>(static_cast<const void*>(std::addressof(f))),
                   [](void* function, const std::string& path, const Array& a, bool) {
                     (*static_cast<Function*>(function))(path, const_cast<LeafOfTree<T>&>(a));
                   });
  visit_tree(std::as_const(tree), visitor);
}

// Calls f(path, array, is_state) for every leaf, in order; is_state: the leaf is an nn::State.
template <class T, class F>
void for_each_leaf(T& tree, F&& f) {
  using Function = std::remove_reference_t<F>;
  EachLeaf visitor(const_cast<void*>(static_cast<const void*>(std::addressof(f))),
                   [](void* function, const std::string& path, const Array& a, bool is_state) {
                     (*static_cast<Function*>(function))(path, const_cast<LeafOfTree<T>&>(a), is_state);
                   });
  visit_tree(std::as_const(tree), visitor);
}

// The leaves of type L of a tree, with their paths.
template <class L>
struct LeafCollector : PathVisitor {
  using Leaf = L;
  std::vector<std::pair<std::string, L>> leaves;
  void leaf(const L& value) { leaves.emplace_back(path, value); }
  void array(const Array&) {}
};

// The structure of a tree: the sizes and keys of its containers and, if `with_values`, its static values.
class TreeStructure : public PathVisitor {
 public:
  template <class T>
  TreeStructure(const T& tree, bool with_values) : with_values_(with_values) {
    visit_tree(tree, *this);
  }
  void array(const Array&) { add("an array"); }
  template <class T>
  void static_value(const T& value) {
    if (with_values_) add(text_of(value));
  }
  template <class T>
  void key(const T& value) {
    add("key " + text_of(value));
  }
  void size(size_t n) { add(std::to_string(n) + (n == 1 ? " element" : " elements")); }

  // Throws Error unless both structures are equal. The message names the first difference: "`what`: at
  // layers/0: 1 element `here` and 2 elements `there`; `remedy`".
  void check_same(const TreeStructure& other, const char* what, const char* here, const char* there,
                  const char* remedy) const;
  // A line for each entry: "layers/0/w: an array".
  std::string to_string() const;
  const std::vector<std::pair<std::string, std::string>>& entries() const { return entries_; }
  bool operator==(const TreeStructure& other) const { return entries_ == other.entries_; }

 private:
  static std::string text_of(const std::string& value) { return '"' + value + '"'; }
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) static std::string text_of(T value) {
    if constexpr (std::is_floating_point_v<T>)
      return text_of_real(static_cast<double>(value));
    else if constexpr (std::is_same_v<T, bool>)
      return value ? "true" : "false";
    else
      return std::to_string(static_cast<int64_t>(value));
  }
  static std::string text_of_real(double value);
  void add(std::string what) { entries_.emplace_back(path, std::move(what)); }

  bool with_values_;
  std::vector<std::pair<std::string, std::string>> entries_;  // path and description
};

// Throws Error unless two trees of one type have the same structure. Trees of different types are matched
// leaf by leaf.
template <class T, class U>
void check_alike(const char* what, const T& tree, const U& other) {
  if constexpr (std::is_same_v<T, U>)
    TreeStructure(tree, false)
        .check_same(TreeStructure(other, false), what, "in one tree", "in another",
                    "the trees must have the same structure");
}

// Throws Error: the trees have different numbers of leaves.
[[noreturn]] void throw_tree_mismatch(const char* what, size_t wanted, size_t got);

}  // namespace lockstep::detail
