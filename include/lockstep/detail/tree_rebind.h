// The type of a tree whose arrays are replaced by another type, for tree_map() and tree_transpose(). Not part of the
// public API.
#pragma once

#include "lockstep/detail/tree_visitor.h"

namespace lockstep::detail {

// A plain struct is rebound if it is a template of its leaves' type: Layer<Array> becomes Layer<L>.
template <class T, class L>
struct Rebind {
  static constexpr bool is_template = false;
  using type = T;
  static_assert(is_static_value<T> || is_template,
                "tree_map: the function returns another type than Array, for which this struct has no place; make it a template "
                "of its leaf type (template <class T> struct Layer { T w, b; }), or use std containers");
};
template <class L>
struct Rebind<Array, L> {
  using type = L;
};
template <class L>
struct Rebind<nn::State, L> {
  using type = L;
};
template <template <class> class S, class L>
requires(!is_vector<S<Array>> && !is_optional<S<Array>> && !is_tuple<S<Array>>) struct Rebind<S<Array>, L> {
  using type = S<L>;
};
template <class T, class A, class L>
struct Rebind<std::vector<T, A>, L> {
  using type = std::vector<typename Rebind<T, L>::type>;
};
template <class T, size_t N, class L>
struct Rebind<std::array<T, N>, L> {
  using type = std::array<typename Rebind<T, L>::type, N>;
};
template <class... T, class L>
struct Rebind<std::tuple<T...>, L> {
  using type = std::tuple<typename Rebind<T, L>::type...>;
};
template <class A, class B, class L>
struct Rebind<std::pair<A, B>, L> {
  using type = std::pair<typename Rebind<A, L>::type, typename Rebind<B, L>::type>;
};
template <class K, class V, class C, class A, class L>
struct Rebind<std::map<K, V, C, A>, L> {
  using type = std::map<K, typename Rebind<V, L>::type, C>;
};
template <class T, class L>
struct Rebind<std::optional<T>, L> {
  using type = std::optional<typename Rebind<T, L>::type>;
};

// Builds the rebound tree; takes its leaves from `next` on, in order.
template <class L, class T>
typename Rebind<T, L>::type rebound(const T& tree, L*& next) {
  using R = typename Rebind<T, L>::type;
  if constexpr (is_array_leaf<T>) {
    return std::move(*next++);
  } else if constexpr (is_static_value<T>) {
    return tree;
  } else if constexpr (is_vector<T>) {
    R out;
    for (const auto& child : tree) out.push_back(rebound<L>(child, next));
    return out;
  } else if constexpr (is_map<T>) {
    R out;
    for (const auto& [key, child] : tree) out.emplace(key, rebound<L>(child, next));
    return out;
  } else if constexpr (is_optional<T>) {
    return tree ? R(rebound<L>(*tree, next)) : R();
  } else if constexpr (is_tuple<T> || is_std_array<T>) {
    return [&]<size_t... I>(std::index_sequence<I...>) { return R{rebound<L>(std::get<I>(tree), next)...}; }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  } else {
    auto fields = tie_fields(tree);
    return [&]<size_t... I>(std::index_sequence<I...>) { return R{rebound<L>(std::get<I>(fields), next)...}; }
    (std::make_index_sequence<std::tuple_size_v<decltype(fields)>>{});
  }
}

}  // namespace lockstep::detail
