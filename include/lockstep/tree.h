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

#include "lockstep/detail/tree_visitor.h"

namespace lockstep {

// The arrays of a tree, in order.
template <class T>
std::vector<Array> tree_leaves(const T& tree) {
  std::vector<Array> out;
  detail::for_each_array(tree, [&](const Array& a) { out.push_back(a); });
  return out;
}

// The arrays of a tree with their paths.
template <class T>
std::vector<std::pair<std::string, Array>> tree_flatten(const T& tree) {
  std::vector<std::pair<std::string, Array>> out;
  detail::for_each_path(tree, [&](const std::string& path, const Array& a) { out.emplace_back(path, a); });
  return out;
}

// Returns `tree` with its arrays replaced by `leaves`. Throws Error when their number differs.
template <class T>
T tree_unflatten(T tree, const std::vector<Array>& leaves) {
  size_t i = 0;
  detail::for_each_array(tree, [&](Array& a) {
    if (i < leaves.size()) a = leaves[i];
    ++i;
  });
  if (i != leaves.size()) detail::throw_tree_mismatch("tree_unflatten", i, leaves.size());
  return tree;
}

// Applies f to the arrays of one tree, or to corresponding arrays of several. Returns a tree like the first.
// Throws Error when the structures differ.
template <class F, class T, class... Rest>
T tree_map(F&& f, T tree, const Rest&... rest) {
  const std::array<std::vector<Array>, sizeof...(Rest)> others{tree_leaves(rest)...};
  size_t count = 0;
  detail::for_each_array(tree, [&](const Array&) { ++count; });
  for (const auto& leaves : others)
    if (leaves.size() != count) detail::throw_tree_mismatch("tree_map", count, leaves.size());
  (detail::check_alike("tree_map", tree, rest), ...);
  size_t i = 0;
  detail::for_each_array(tree, [&](Array& a) {
    [&]<size_t... I>(std::index_sequence<I...>) { a = f(a, others[I][i]...); }
    (std::index_sequence_for<Rest...>{});
    ++i;
  });
  return tree;
}

}  // namespace lockstep
