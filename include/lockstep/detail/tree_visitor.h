// Visitors of trees (tree.h): how transforms walk the arrays of their arguments and results. Not part of the
// public API. Pure functions, safe to call from any thread.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/detail/fields.h"
#include "lockstep/state.h"

namespace lockstep::detail {

template <class T>
inline constexpr bool is_vector = false;
template <class T, class A>
inline constexpr bool is_vector<std::vector<T, A>> = true;
template <class T>
inline constexpr bool is_std_array = false;
template <class T, size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;
template <class T>
inline constexpr bool is_map = false;
template <class K, class V, class C, class A>
inline constexpr bool is_map<std::map<K, V, C, A>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_static_value = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;

// The callbacks of a visitor; array(a) must be added. size(n) gets the number of elements of a container,
// key(k) a key of a map. enter(name) and leave() surround each child. state(a) precedes array(a) for an nn::State.
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

// Visits a tree in order. T may be const.
template <class T, class Visitor>
void visit_tree(T& tree, Visitor& v) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, Array>) {
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
    static_assert(std::is_aggregate_v<U>, "not a tree: use Array, numbers, strings, std containers and plain structs");
    auto fields = tie_fields(tree);
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((v.enter(field_name<U, I>()), visit_tree(std::get<I>(fields), v), v.leave()), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(fields)>>{});
  }
}

template <class F>
struct EachArray : VisitorBase {
  F& f;
  explicit EachArray(F& function) : f(function) {}
  template <class A>
  void array(A& a) {
    f(a);
  }
};

// Calls f(Array&) or f(const Array&) for every leaf, in order.
template <class T, class F>
void for_each_array(T& tree, F&& f) {
  EachArray<std::remove_reference_t<F>> visitor(f);
  visit_tree(tree, visitor);
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

template <class F>
struct EachPath : PathVisitor {
  F& f;
  explicit EachPath(F& function) : f(function) {}
  template <class A>
  void array(A& a) {
    f(static_cast<const std::string&>(path), a);
  }
};

// Calls f(path, array) for every leaf, in order.
template <class T, class F>
void for_each_path(T& tree, F&& f) {
  EachPath<std::remove_reference_t<F>> visitor(f);
  visit_tree(tree, visitor);
}

template <class F>
struct EachLeaf : PathVisitor {
  F& f;
  bool is_state = false;
  explicit EachLeaf(F& function) : f(function) {}
  void state(const Array&) { is_state = true; }
  template <class A>
  void array(A& a) {
    f(static_cast<const std::string&>(path), a, std::exchange(is_state, false));
  }
};

// Calls f(path, array, is_state) for every leaf, in order; is_state: the leaf is an nn::State.
template <class T, class F>
void for_each_leaf(T& tree, F&& f) {
  EachLeaf<std::remove_reference_t<F>> visitor(f);
  visit_tree(tree, visitor);
}

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
