// Trees: nested values whose leaves are Arrays.
//
//   struct Layer { Array w, b; };
//   struct Params { std::vector<Layer> layers; };
//   Params p = tree_map([](const Array& a) { return a * 0.5f; }, params);
//
// Array, std::vector, array, tuple, pair, map, optional and plain structs (at most 24 fields, no macro
// needed) nest freely. A leaf has a path such as "layers/0/w", made of field names, indices and keys.
//
// Numbers, enums and strings in a tree are static values: transforms keep them unchanged. scan and cond throw
// Error when a static value changes between iterations or differs between the branches. All functions are
// pure and safe to call from any thread.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/detail/tree_rebind.h"
#include "lockstep/detail/tree_visitor.h"
#include "lockstep/operand.h"

namespace lockstep {

namespace detail {

Array all_of_leaves(const std::vector<Array>& leaves);
Array ravel(const std::vector<Array>& leaves);
std::vector<Type> types_of_leaves(const std::vector<Array>& leaves);
std::vector<Array> unravel(const Array& flat, const std::vector<Type>& types);
[[noreturn]] void throw_empty_transpose();
std::vector<std::pair<std::string, Array>> leaves_with_paths(TreeRef tree);
// Replaces the arrays of a tree, which must not be const.
void unflatten(TreeRef tree, const std::vector<Array>& leaves);

// The arrays of several trees. Throws Error when the trees have different numbers of them.
class LeafTable {
 public:
  LeafTable(const char* what, TreeRefs trees);
  ~LeafTable();
  LeafTable(const LeafTable&) = delete;
  LeafTable& operator=(const LeafTable&) = delete;
  size_t size() const { return size_; }
  const Array& at(size_t tree, size_t leaf) const { return leaves_[tree * size_ + leaf]; }
  // call(f, 0), call(f, 1), ...
  Arrays map(const void* f, Array (*call)(const void* f, size_t leaf)) const;

 private:
  Arrays leaves_;
  size_t size_;
};

template <class Outer>
struct WithArrays {
  using type = std::vector<Array>;
};
template <class T, size_t N>
struct WithArrays<std::array<T, N>> {
  using type = std::array<Array, N>;
};

}  // namespace detail

// The arrays of a tree, in order.
template <class T>
std::vector<Array> tree_leaves(const T& tree) {
  return detail::leaves_of_trees({tree});
}

// The arrays of a tree with their paths.
template <class T>
std::vector<std::pair<std::string, Array>> tree_flatten(const T& tree) {
  return detail::leaves_with_paths(tree);
}

// Returns `tree` with its arrays replaced by `leaves`. Throws Error when their number differs.
template <class T>
T tree_unflatten(T tree, const std::vector<Array>& leaves, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  detail::unflatten(tree, leaves);
  return tree;
}

namespace detail {
template <class F, class T, class... Rest>
auto map_leaves(F&& f, T tree, const Rest&... rest) {
  const detail::LeafTable leaves("tree_map", {detail::TreeRef(tree), detail::TreeRef(rest)...});
  (detail::check_alike("tree_map", tree, rest), ...);
  const auto apply = [&](size_t i) {
    return [&]<size_t... I>(std::index_sequence<I...>) { return f(leaves.at(I, i)...); }
    (std::make_index_sequence<1 + sizeof...(Rest)>{});
  };
  using L = std::decay_t<decltype(apply(0))>;
  if constexpr (std::is_convertible_v<L, Array>) {
    const detail::Arrays results =
        leaves.map(&apply, [](const void* g, size_t i) -> Array { return (*static_cast<decltype(&apply)>(g))(i); });
    const Array* next = results.data();
    detail::assign_arrays(tree, next);
    return tree;
  } else {
    std::vector<L> results;
    for (size_t i = 0; i < leaves.size(); ++i) results.push_back(apply(i));
    L* next = results.data();
    return detail::rebound<L>(tree, next);
  }
}
}  // namespace detail

// Applies f to the arrays of one tree, or to corresponding arrays of several. Returns a tree like the first. If f returns
// another type L than Array, the result has leaves of that type: std::vector<Array> becomes std::vector<L>, and a struct
// Layer<Array> becomes Layer<L>. Throws Error when the structures differ.
template <class F, class T>
auto tree_map(F&& f, T tree) {
  return detail::map_leaves(f, std::move(tree));
}
template <class F, class T, class U>
auto tree_map(F&& f, T tree, const U& other, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::map_leaves(f, std::move(tree), other);
}
template <class F, class T, class U, class V>
auto tree_map(F&& f, T tree, const U& second, const V& third, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  return detail::map_leaves(f, std::move(tree), second, third);
}
template <class F, class T, class U, class V, class W, class... Rest>
auto tree_map(F&& f, T tree, const U& second, const V& third, const W& fourth, const Rest&... rest) {
  return detail::map_leaves(f, std::move(tree), second, third, fourth, rest...);
}

// tree_map() of a function of path and array: tree_map_with_path([](const std::string& path, Array x) { ... }, tree).
template <class F, class T>
auto tree_map_with_path(F&& f, T tree) {
  std::vector<std::pair<std::string, Array>> leaves = tree_flatten(tree);
  size_t i = 0;
  return tree_map([&](const Array& a) { return f(static_cast<const std::string&>(leaves[i++].first), a); }, tree);
}

// The arrays of a tree with their paths; the same as tree_flatten().
template <class T>
std::vector<std::pair<std::string, Array>> tree_leaves_with_path(const T& tree) {
  return tree_flatten(tree);
}

// The structure of a tree: everything but its arrays. Two are equal if containers have the same sizes and keys, and static
// values are equal.
template <class T>
class TreeDef {
 public:
  explicit TreeDef(T tree) : tree_(std::move(tree)), structure_(tree_, true) {
    leaves_ = detail::array_count(tree_);
    detail::clear_arrays(tree_);
  }
  size_t num_leaves() const { return leaves_; }
  // Returns the tree with these arrays. Throws Error when their number differs.
  T unflatten(const std::vector<Array>& leaves, SourceLine at = SourceLine::here()) const {
    return tree_unflatten(tree_, leaves, at);
  }
  // A line for each container, static value and array: "layers/0/w: an array".
  std::string to_string() const { return structure_.to_string(); }
  bool operator==(const TreeDef& other) const { return structure_ == other.structure_; }

 private:
  T tree_;  // with empty arrays
  detail::TreeStructure structure_;
  size_t leaves_ = 0;
};
template <class T>
TreeDef<T> tree_structure(T tree) {
  return TreeDef<T>(std::move(tree));
}
template <class T>
T tree_unflatten(const TreeDef<T>& structure, const std::vector<Array>& leaves, SourceLine at = SourceLine::here()) {
  return structure.unflatten(leaves, at);
}

// f(f(f(initial, leaf 0), leaf 1), ...).
template <class F, class T, class R>
R tree_reduce(F&& f, const T& tree, R initial) {
  for (const Array& leaf : tree_leaves(tree)) initial = f(std::move(initial), leaf);
  return initial;
}

// Whether all elements of all arrays are nonzero, as a bool array without dimensions.
template <class T>
Array tree_all(const T& tree) {
  return detail::all_of_leaves(tree_leaves(tree));
}

// Exchanges a container of equal trees for a tree of containers: std::vector<std::pair<Array, Array>> becomes
// std::pair<std::vector<Array>, std::vector<Array>>, and std::array<Layer<Array>, 2> becomes Layer<std::array<Array, 2>>.
// Throws Error when the container is empty or the trees differ in structure.
template <class Outer>
auto tree_transpose(const Outer& outer, SourceLine at = SourceLine::here()) {
  const detail::CallerLine line(at);
  static_assert(detail::is_vector<Outer> || detail::is_std_array<Outer>,
                "tree_transpose: pass a std::vector or std::array of trees");
  using Inner = typename Outer::value_type;
  if (outer.empty()) detail::throw_empty_transpose();
  for (const Inner& each : outer) detail::check_alike("tree_transpose", outer[0], each);
  std::vector<std::vector<Array>> leaves;
  for (const Inner& each : outer) leaves.push_back(tree_leaves(each));
  using Column = typename detail::WithArrays<Outer>::type;
  std::vector<Column> columns(leaves[0].size());
  for (size_t i = 0; i < columns.size(); ++i) {
    if constexpr (detail::is_vector<Outer>) columns[i].resize(outer.size());
    for (size_t k = 0; k < outer.size(); ++k) columns[i][k] = leaves[k][i];
  }
  Column* next = columns.data();
  return detail::rebound<Column>(outer[0], next);
}

// All elements of a tree's arrays as one vector, and the function that makes a tree from such a vector:
//
//   auto [flat, unravel] = ravel_pytree(params);
//   Params p = unravel(flat * 2);
//
// The vector has the promoted element type; unravel() converts back. It throws Error for a vector of another length.
template <class T>
auto ravel_pytree(const T& tree) {
  const std::vector<Array> leaves = tree_leaves(tree);
  auto unravel = [form = tree_structure(tree), types = detail::types_of_leaves(leaves)](const Operand& flat) {
    return form.unflatten(detail::unravel(flat, types));
  };
  return std::pair{detail::ravel(leaves), std::move(unravel)};
}

}  // namespace lockstep
