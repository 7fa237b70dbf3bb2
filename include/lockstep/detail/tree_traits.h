// What kinds of types trees consist of. Not part of the public API.
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
template <class T>
inline constexpr bool is_array_leaf = std::is_same_v<T, Array> || std::is_same_v<T, nn::State>;
// Leaves of trees without arrays, such as specs (per_leaf.h): neither visited as arrays nor static.
template <class T>
inline constexpr bool is_tree_leaf = std::is_same_v<T, PartitionSpec> || std::is_same_v<T, NamedSharding>;

}  // namespace lockstep::detail
