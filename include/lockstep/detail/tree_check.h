// Compile-time checks of trees and functions: what a tree must not contain, and what a transformed function must look
// like. Each mistake is one static_assert with a remedy; the type that it names has the struct, the position of the
// member (from 0) and the member's type. Not part of the public API.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/array.h"
#include "lockstep/detail/fields.h"
#include "lockstep/detail/tree_traits.h"

namespace lockstep::detail {

enum class TreeFault {
  none,
  base_class,
  c_array,
  reference,
  constant,
  pointer,
  text,
  string_view,
  unordered,
  too_many_fields,
  not_a_struct,
};

// The first fault of a tree type: the member at `position` of Owner.
template <class O, size_t I, class M, TreeFault K>
struct Fault {
  using Owner = O;
  using Member = M;
  static constexpr size_t position = I;
  static constexpr TreeFault kind = K;
};
using NoFault = Fault<void, 0, void, TreeFault::none>;

// Converts only to base classes of T.
template <class T>
struct AnyBase {
  template <class U>
  requires(std::is_base_of_v<U, T> && !std::is_same_v<U, T>) operator U() const;
};
template <class T>
inline constexpr bool has_base = requires { T{AnyBase<T>{}}; };

// Whether `before` fields, an empty one, and `after` fields initialize a T.
template <class T, size_t... B, size_t... A>
constexpr bool takes_empty(std::index_sequence<B...>, std::index_sequence<A...>) {
  return requires { T{(static_cast<void>(B), AnyField<T>{})..., {}, (static_cast<void>(A), AnyField<T>{})...}; };
}
// The position of the first C array of at least two elements; n if there is none. Braces around the elements of an array
// may be omitted, so it counts as several fields, of which {} initializes all.
template <class T, size_t N, size_t I = 0>
constexpr size_t first_c_array() {
  if constexpr (I + 1 >= N)
    return N;
  else if constexpr (takes_empty<T>(std::make_index_sequence<I>(), std::index_sequence<>()) &&
                     !takes_empty<T>(std::make_index_sequence<I>(), std::make_index_sequence<N - I - 1>()))
    return I;
  else
    return first_c_array<T, N, I + 1>();
}

template <class T, class Owner, size_t I>
constexpr auto find_fault();

// The first fault among Members, which are those of Owner.
template <class Owner, size_t I, class... Members>
struct FirstFault {
  using type = NoFault;
};
template <class Owner, size_t I, class M, class... Rest>
struct FirstFault<Owner, I, M, Rest...> {
  using Here = decltype(find_fault<M, Owner, I>());
  using type = typename std::conditional_t<Here::kind != TreeFault::none, std::type_identity<Here>,
                                           FirstFault<Owner, I + 1, Rest...>>::type;
};

template <class Owner, class Tuple>
struct FirstFaultOf;
template <class Owner, class... M>
struct FirstFaultOf<Owner, std::tuple<M...>> : FirstFault<Owner, 0, std::remove_reference_t<M>...> {};
template <class Owner, class A, class B>
struct FirstFaultOf<Owner, std::pair<A, B>> : FirstFault<Owner, 0, A, B> {};
template <class Owner>
struct FindFaultInFields {
  template <class... M>
  constexpr auto operator()(M&...) const {
    return typename FirstFault<Owner, 0, M...>::type();
  }
};

// std::unordered_map, without its header.
template <class T>
inline constexpr bool is_unordered = requires {
  typename T::hasher;
  typename T::key_equal;
  typename T::mapped_type;
};

template <class T>
constexpr auto find_fault_in_struct() {
  constexpr size_t n = field_count_of<T>;
  if constexpr (has_base<T>)
    return Fault<T, 0, T, TreeFault::base_class>();
  else if constexpr (n == 0 && !std::is_empty_v<T>)
    return Fault<T, 0, T, TreeFault::reference>();
  else if constexpr (first_c_array<T, n>() < n)
    return Fault<T, first_c_array<T, n>(), T, TreeFault::c_array>();
  else if constexpr (n == kMaxFields && is_initializable_with<T>(std::make_index_sequence<kMaxFields + 1>{}))
    return Fault<T, n, T, TreeFault::too_many_fields>();
  else
    return decltype(with_fields(std::declval<T&>(), FindFaultInFields<T>()))();
}

// T is a member of Owner at position I.
template <class T, class Owner, size_t I>
constexpr auto find_fault() {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_const_v<T>)
    return Fault<Owner, I, T, TreeFault::constant>();
  else if constexpr (std::is_reference_v<T>)
    return Fault<Owner, I, T, TreeFault::reference>();
  else if constexpr (is_array_leaf<U> || is_static_value<U> || is_tree_leaf<U>)
    return NoFault();
  else if constexpr (std::is_same_v<std::decay_t<U>, const char*> || std::is_same_v<std::decay_t<U>, char*>)
    return Fault<Owner, I, T, TreeFault::text>();
  else if constexpr (std::is_array_v<U>)
    return Fault<Owner, I, T, TreeFault::c_array>();
  else if constexpr (std::is_pointer_v<U>)
    return Fault<Owner, I, T, TreeFault::pointer>();
  else if constexpr (std::is_same_v<U, std::string_view>)
    return Fault<Owner, I, T, TreeFault::string_view>();
  else if constexpr (is_unordered<U>)
    return Fault<Owner, I, T, TreeFault::unordered>();
  else if constexpr (is_vector<U> || is_std_array<U> || is_optional<U>)
    return find_fault<typename U::value_type, U, 0>();
  else if constexpr (is_map<U>)
    return find_fault<typename U::mapped_type, U, 0>();
  else if constexpr (is_tuple<U>)
    return typename FirstFaultOf<U, U>::type();
  else if constexpr (std::is_aggregate_v<U> && !std::is_union_v<U>)
    return find_fault_in_struct<U>();
  else
    return Fault<Owner, I, T, TreeFault::not_a_struct>();
}

// An argument or result itself, as the owner of a fault: ArgumentOfType<int*>.
template <class T>
struct WholeTree {};
template <class T>
using FaultOf = decltype(find_fault<T, WholeTree<T>, 0>());

// Compiles if T is a tree.
template <class Owner, size_t kPosition, class Member, TreeFault kFault>
struct MemberOfTree {
  static_assert(kFault != TreeFault::base_class,
                "not a tree: this struct has a base class; make the base a member instead");
  static_assert(kFault != TreeFault::c_array,
                "not a tree: the member at this position is a C array; use std::array or std::vector");
  static_assert(kFault != TreeFault::reference,
                "not a tree: this struct has a reference as a member; store the value itself");
  static_assert(kFault != TreeFault::constant,
                "not a tree: the member at this position is const, so transforms cannot replace it; remove const");
  static_assert(kFault != TreeFault::pointer,
                "not a tree: a pointer; store the value itself, or std::optional");
  static_assert(kFault != TreeFault::text, "not a tree: text in a const char* or a string literal; use std::string");
  static_assert(kFault != TreeFault::string_view, "not a tree: std::string_view; use std::string");
  static_assert(kFault != TreeFault::unordered,
                "not a tree: std::unordered_map has no order; use std::map");
  static_assert(kFault != TreeFault::too_many_fields,
                "not a tree: a struct in a tree has at most 24 fields; group some of them into a nested struct");
  static_assert(kFault != TreeFault::not_a_struct,
                "not a tree: this type has constructors or private members; use Array, numbers, strings, std containers and "
                "plain structs");
  static constexpr bool ok = true;
};
template <class T>
inline constexpr bool check_tree =
    MemberOfTree<typename FaultOf<T>::Owner, FaultOf<T>::position, typename FaultOf<T>::Member, FaultOf<T>::kind>::ok;
template <>
inline constexpr bool check_tree<void> = false;  // of a function that returns nothing, which has its own message

template <class T>
inline constexpr bool is_tree = FaultOf<T>::kind == TreeFault::none;

// Compiles if const F& can be called with Args.
template <class F, class... Args>
struct FunctionOf {
  static constexpr bool callable = std::is_invocable_v<const F&, const Args&...>;
  static_assert(callable || !std::is_invocable_v<F&, const Args&...>,
                "the function is a mutable lambda: it is traced once, so changes of its captures would be lost; remove "
                "mutable, and pass state as arguments and results");
  static_assert(callable || !std::is_invocable_v<const F&, Args&...>,
                "the function takes an argument by reference (Array&): changes of arguments would be lost; take it by "
                "value or const reference, and return the new value");
  static_assert(callable || std::is_invocable_v<F&, const Args&...> || std::is_invocable_v<const F&, Args&...>,
                "the function cannot be called with these arguments: their number or types do not match its parameters");
};
template <bool kCallable, class F, class... Args>
struct InvokeResult {
  using type = std::decay_t<std::invoke_result_t<const F&, const Args&...>>;
};
template <class F, class... Args>
struct InvokeResult<false, F, Args...> {
  using type = int;
};

// Compiles if a function of unknown parameters (a generic lambda) can be called with trees and returns one.
template <class F, class... Args>
struct GenericCall {
  using Result = typename InvokeResult<(is_tree<Args> && ...) && FunctionOf<F, Args...>::callable, F, Args...>::type;
  static_assert(!std::is_void_v<Result>, "the function returns nothing: return an Array or another tree");
  static constexpr bool ok = (check_tree<Args> && ...) && FunctionOf<F, Args...>::callable && check_tree<Result>;
};

}  // namespace lockstep::detail
